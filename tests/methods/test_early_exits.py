"""CALM and FREE alike: what comes out of an exit, and that probing costs the same wherever the dial stands."""

from types import SimpleNamespace

import pytest
import torch

from adaptive_bench.method.kinds import leaving_tokens
from adaptive_bench.methods.calm import NEVER

LAYERS = 4
MEASURES = ("softmax", "state", "classifier", "convergence")
FREE = ("free", "free@paper", "free[confidence=state]")


@torch.no_grad()
@pytest.mark.parametrize(
    ("spec", "dial", "layers"),
    [
        ("calm", 0.0, 1),
        ("calm[exit_prompt=true]", 0.0, 1),
        ("calm[min_exit=2]", 0.0, 2),
        ("calm[confidence=state]", -1.0, 2),  # there is nothing to compare with at the first exit
        ("calm[confidence=state,exit_interval=2]", -1.0, 3),
        *((spec, -1.0, 2) for spec in FREE),
    ],
)
def test_at_the_minimum_every_token_that_writes_is_the_truncated_model_s(
    shared_model, ids, answer, writing, watch, depth, truncated, spec, dial, layers
):
    """T-CA2, T-CA7, T-FR6: all of the prompt but its last position, which writes the first answer token, stays at full
    depth, unless it exits too.
    """
    model, exits = shared_model(spec), torch.ones_like(writing) if "exit_prompt" in spec else writing
    model.dial = dial
    with watch(model) as watched:
        logits = model(ids, continuation_mask=answer).logits
    if "calm" in spec:
        assert torch.equal(depth(watched), torch.where(exits, layers, LAYERS))
        assert model.method.max_saved_tokens == pytest.approx(1 - layers / LAYERS)
    short = truncated(model.backbone_model, layers)(ids).logits
    torch.testing.assert_close(logits[exits], short[exits], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[~exits], model.backbone_model(ids).logits[~exits], atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("spec", [*(f"calm[confidence={measure}]" for measure in MEASURES), *FREE])
def test_the_curve_does_not_jump_where_exits_begin(make_model, ids, answer, spec):
    """Nobody exits at NEVER, and hardly anybody at 1: as many are probed, so that the net savings are equal."""
    model = make_model(spec).eval()
    for parameter in model.method.parameters():
        parameter.zero_()  # large states saturate a random classifier: then many are as sure as can be
    net = []
    for model.dial in (NEVER, 1.0):
        model.reset_ledger()
        model(ids, continuation_mask=answer)
        net.append(model.compute_report()["saved"]["net"])
    assert net[0] == net[1] < 0


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_the_gap_of_logits_in_half_precision_is_not_rounded(fixed_shapes):
    logits = torch.tensor([[3.0, 2.0, -1.0], [0.5, 0.25, 0.0]], dtype=torch.bfloat16)
    call = SimpleNamespace(fixed_shapes=fixed_shapes, probed=[])
    view = SimpleNamespace(call=call, probe=lambda *_: logits, answer=lambda *_: None)
    asked = []

    def passes(confidence, tokens):
        asked.append(confidence)
        return confidence > 0.3

    leaving = leaving_tokens(view, torch.ones(1, 2, dtype=torch.bool), None, passes)
    likeliest, following = logits.double().softmax(dim=-1).T[:2]
    torch.testing.assert_close(asked[0].double(), likeliest - following, rtol=0, atol=1e-6)
    assert leaving.tolist() == [[True, False]]
