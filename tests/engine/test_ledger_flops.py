"""The ledger against PyTorch's flop counter (X8): core + overhead + waste is what was really executed.

With eager attention, since the counter reads fused CPU attention as nothing. The rotary tables' matrix product, which
is no branch's work, is the only thing the counter sees and the ledger does not: far below a thousandth.
"""

import pytest
import torch
from counted import turned
from covering import each_once
from pretended_accelerator import DEVICE, pretended
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.model.generation import new_tokens

SPECS = [
    "dense",
    *(f"random_skip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    "gateskip",
    "gateskip[shape=scalar,kv=evict]",
    "gateskip@paper",
    "mod",
    "mod@paper",
]
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "granite", "olmo2", "phi3", "smollm3")


def assert_ledger_is_exact(model, run):
    model.reset_ledger()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    assert 2 * model.ledger.total_macs() == pytest.approx(counter.get_total_flops(), rel=1e-3)


@pytest.mark.parametrize(("spec", "family"), each_once(SPECS, FAMILIES))
def test_prefill_and_decode(spec, family, shared_model, random_text):
    """X8: a left-padded prompt, a right-padded one, and generation in which rows finish, skipping nothing or a lot."""
    model, ids = shared_model(spec, family, "eager"), random_text(3, 20)
    left = torch.arange(20).expand(3, 20) >= torch.tensor([[0], [7], [19]])
    for saved_tokens in (0.0, 0.3):
        turned(model, saved_tokens)
        assert_ledger_is_exact(model, lambda: model(ids))
        assert_ledger_is_exact(model, lambda: model(ids, left.flip(1), logits_to_keep=torch.tensor([0, 5, 9])))
        assert_ledger_is_exact(
            model, lambda: new_tokens(model, ids, left, max_new_tokens=6, stop=lambda new: new[-1] % 5 == 0)
        )


@pytest.mark.parametrize("spec", SPECS)
def test_masked_execution_is_booked_as_waste(spec, shared_model, random_text):
    """X8: the masked executor runs everything; the ledger says so, and that the saving is not a real one."""
    model, ids = shared_model(spec, "llama", "eager"), random_text(3, 20)
    mask = torch.arange(20).expand(3, 20) >= torch.tensor([[0], [7], [19]])
    model.executor = "masked"
    turned(model, 0.3)
    assert_ledger_is_exact(model, lambda: new_tokens(model, ids, mask, max_new_tokens=4))
    report = model.compute_report()
    assert report["macs"]["waste.dense"] > 0
    assert report["saved"]["executed"] <= 0


@pytest.mark.parametrize("spec", [*SPECS, "skiplayer", "calm", "calm[confidence=classifier]", "free", "free@paper"])
def test_rows_that_run_for_a_fixed_shape_are_booked_as_waste(spec, make_model, make_backbone, random_text):
    """On an accelerator every row goes through a branch that is decided upon from hidden states."""
    model, ids = make_model(spec, backbone=make_backbone("llama", "eager")), random_text(3, 9)
    left = torch.arange(9).expand(3, 9) >= torch.tensor([[0], [4], [7]])
    turned(model, 0.3)
    with pretended():
        model.to(DEVICE)
        ids, left = ids.to(DEVICE), left.to(DEVICE)
        assert_ledger_is_exact(model, lambda: new_tokens(model, ids, left, max_new_tokens=5))


def test_packed_execution_wastes_little(shared_backbone, make_pattern, run_pattern, random_text):
    """X8: the packed executor wastes nothing but padding of ragged rows and keys behind the causal mask."""
    backbone, ids = shared_backbone("llama", "eager"), random_text(1, 20)
    pattern = make_pattern(1, 20, 4, share=0.5)
    model = run_pattern(backbone, pattern)
    assert_ledger_is_exact(model, lambda: model(ids))
    pairs = sum(int((~torch.ones(20, 20).tril().bool())[pattern.keep[0, 2 * layer]].sum()) for layer in range(4))
    assert model.compute_report()["macs"]["waste.dense"] == pairs * 2 * 32
