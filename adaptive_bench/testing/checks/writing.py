"""Text read in one call and the same text written token by token: what each of them executes."""

from __future__ import annotations

import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.backbones import Text


@torch.no_grad()
def saved_by_phase(model: AdaptiveModel, text: Text, prompt: int) -> dict[str, float]:
    """Shares of token-branches saved, for rows of one length: `scoring` a text in one call, and in cached decoding of
    the same text its `prompt`, the `writing` of the rest one token per row and call, and the two `together`.
    """
    model.reset_ledger()
    model(**text.arguments)
    scoring = model.compute_report()["prefill"]["tokens"]
    model.reset_ledger()
    output = model(text.input_ids[:, :prompt], use_cache=True, logits_to_keep=1)
    for at in range(prompt, text.input_ids.shape[1]):
        output = model(text.input_ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True)
    report = model.compute_report()
    return {
        "scoring": scoring,
        "prompt": report["prefill"]["tokens"],
        "writing": report["decode"]["tokens"],
        "together": report["saved"]["tokens"],
    }
