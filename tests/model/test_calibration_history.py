"""Calibration that fails, comes in parts, or is asked again: thresholds depend on what was measured, not on when."""

import pytest
import torch


def text(rows=20, length=24, seed=0):
    ids = torch.randint(3, 97, (rows, length), generator=torch.Generator().manual_seed(seed))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "continuation_mask": torch.arange(length).expand_as(ids) >= length // 2,
    }


@pytest.mark.parametrize("spec", ["gateskip", "calm"])
@torch.no_grad()
def test_failed_calibration_changes_nothing(spec, make_model, random_text, monkeypatch):
    """Out of memory half-way: the model decides as before, at its dial, in its mode, with its counts."""
    model, ids = make_model(spec), random_text(1, 20)
    model.dial = model.method.dial_for(0.3)
    dial, logits = model.dial, model(ids).logits
    report = model.compute_report()
    decide, calls = model.method.decide, []

    def out_of_memory(view):
        calls.append(view)
        if len(calls) == 5:
            raise torch.OutOfMemoryError("too many rows")
        return decide(view)

    monkeypatch.setattr(model.method, "decide", out_of_memory)
    model.train()
    with pytest.raises(torch.OutOfMemoryError):
        model.calibrate([text()], [0.37])
    monkeypatch.setattr(model.method, "decide", decide)
    assert model.training and model.dial == dial and model.compute_report() == report
    assert torch.equal(model.eval()(ids).logits, logits)
