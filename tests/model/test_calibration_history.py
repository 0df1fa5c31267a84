"""Calibration that fails, comes in parts, or is asked again: thresholds depend on what was measured, not on when."""

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.method import Thresholds


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
        model.calibrate([text()], [0.21])  # not yet between two dial values that are measured and close enough
    monkeypatch.setattr(model.method, "decide", decide)
    assert model.training and model.dial == dial and model.compute_report() == report
    assert torch.equal(model.eval()(ids).logits, logits)


def test_a_calibrated_share_keeps_its_thresholds(make_model):
    """Before, after, alone or along with others: a share's thresholds are those measured for it."""
    model = make_model("gateskip")
    thresholds, found = model.method.thresholds, []
    for savings in ([[0.3]], [[0.28, 0.29], [0.3]], [[0.3], [0.28, 0.29, 0.31]], [[0.1, 0.3], [0.05]]):
        thresholds.clear()
        for some in savings:
            model.calibrate([text(40)], some)
        found.append(thresholds.at(0.3))
    assert all(torch.equal(row, found[0]) for row in found)


def test_the_order_of_calibration_does_not_matter(make_model):
    """Between calibrated shares too, down to the share 0 that nobody measures."""
    model, rows = make_model("gateskip"), []
    for savings in ([[0.1, 0.2, 0.3]], [[0.3], [0.1], [0.2]], [[0.2, 0.3], [0.2], [0.1]]):
        model.method.thresholds.clear()
        for some in savings:
            model.calibrate([text(40)], some)
        rows.append(torch.stack([model.method.thresholds.at(share) for share in (0.0, 0.04, 0.1, 0.17, 0.25, 0.3)]))
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2])


def test_no_threshold_falls_between_two_shares():
    """Measured rows stay what they are; what lies between them never falls."""
    thresholds = Thresholds([0])
    shares, values = torch.tensor([[0.0, 0.2, 0.4], [0.1, 0.5, 0.4]], dtype=torch.float64)
    thresholds.load({"shares": shares, "values": values[:, None, None].expand(3, 2, 1)})
    lookup = [float(thresholds.at(share)[0, 0]) for share in (0.1, 0.2, 0.3, 0.4)]
    assert lookup == pytest.approx([0.3, 0.5, 0.5, 0.4])


@torch.no_grad()
def test_new_thresholds_count_at_once(make_model, random_text):
    """Rows kept ready for use are dropped with the thresholds they come from."""
    model, ids = make_model("gateskip"), random_text(2, 20)
    fresh = make_model("gateskip")
    fresh.method.thresholds.clear()
    fresh.calibrate([text(40)], [0.3])
    for each in (model, fresh):
        each.dial = each.method.dial_for(0.3)
    before, wanted = model(ids).logits, fresh(ids).logits
    model.calibrate([text(40)], [0.3])
    assert torch.equal(model(ids).logits, wanted) and not torch.equal(before, wanted)
    model.begin_step(1, 2)
    with pytest.raises(UsageError, match="nothing calibrated"):
        model(ids)


@pytest.mark.parametrize("batches", [[], [{"input_ids": torch.zeros(1, 2, dtype=torch.long)}]])
@pytest.mark.parametrize("spec", ["gateskip", "calm"])
def test_calibrating_without_text(spec, batches, make_model):
    """The error says what is needed."""
    batches = [
        dict(batch, attention_mask=batch["input_ids"], continuation_mask=batch["input_ids"]) for batch in batches
    ]
    with pytest.raises(UsageError, match="held-out training text, got 0 tokens"):
        make_model(spec).calibrate(batches, [0.1])
    assert make_model("dense").calibrate(batches, [0.0])["tokens"] == 0
