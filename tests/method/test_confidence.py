"""Confidence is a matter of fp32, whatever precision the model runs in."""

from types import SimpleNamespace

import pytest
import torch

from adaptive_bench.method.early_exit import leaving_tokens


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
