"""What a method adds to a model: parameters, memory, the cost of deciding and of what skipped tokens get instead of a
branch, all read from the live model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from adaptive_bench.engine.ledger import BUCKETS
from adaptive_bench.model.adaptive_model import AdaptiveModel

_PROMPT, _ANSWER = 4, 16  # tokens of the forward call that is measured
_TRAVELS = (0.0, 0.01, 0.5, 1.0)  # over the dial; a probe costs most where it is asked and hardly anybody passes


@dataclass(frozen=True)
class Overhead:
    """Costs of one method on one backbone.

    Attributes:
        parameters: Of the method alone.
        backbone_parameters: Of the model it sits on.
        parameter_bytes: Memory of the method's parameters and buffers.
        decision_macs: Multiply-accumulates spent on deciding for one generated token, at the dial value where they
            are most (a probe costs only while there is something to decide).
        adapter_macs: The same spent on what tokens get that skip (`Decision.otherwise`).
        dense_macs: What the model without the method spends on the same token.
    """

    parameters: int
    backbone_parameters: int
    parameter_bytes: int
    decision_macs: float
    adapter_macs: float
    dense_macs: float


@torch.no_grad()
def measure_overhead(model: AdaptiveModel) -> Overhead:
    """Count a model's additions, and run it on random tokens over its whole dial to see in the ledger what deciding
    costs. Leaves dial, thresholds and ledger of the model changed.
    """
    own = [*model.method.parameters(), *model.method.buffers()]
    decision, adapter, dense = map(max, zip(*(_costs_per_token(model, dial) for dial in _dials(model)), strict=True))
    return Overhead(
        parameters=sum(parameter.numel() for parameter in model.method.parameters()),
        backbone_parameters=sum(parameter.numel() for parameter in model.backbone_model.parameters()),
        parameter_bytes=sum(tensor.numel() * tensor.element_size() for tensor in own),
        decision_macs=decision,
        adapter_macs=adapter,
        dense_macs=dense,
    )


def _dials(model: AdaptiveModel) -> list[float]:
    method = model.method
    ids = _tokens(model)
    everything = torch.ones_like(ids)
    batch = {"input_ids": ids, "attention_mask": everything, "continuation_mask": everything.bool()}
    model.prepare_training([batch])
    if method.thresholds is not None or method.fitted is not None:  # the largest saving makes every smaller one usable
        model.calibrate([batch], [method.max_saving])
    return [method.dial.at(travel) for travel in _TRAVELS]


def _costs_per_token(model: AdaptiveModel, dial: float) -> tuple[float, float, float]:
    """MACs of deciding, of what tokens get instead of a branch, and of the dense model for one generated token."""
    model.eval()
    model.dial = dial
    ids = _tokens(model)
    prompt = model(ids[:, :_PROMPT], use_cache=True, logits_to_keep=1)
    model.reset_ledger()
    model(ids[:, _PROMPT:], past_key_values=prompt.past_key_values, use_cache=True)
    counts = model.compute_report()["counts"]["decode"]
    own = (BUCKETS.index(name) for name in ("overhead.decision", "overhead.adapter"))
    decision, adapter = (sum(row[column] for row in counts["macs"]) / counts["tokens"] for column in own)
    return decision, adapter, sum(counts["dense_macs"]) / counts["tokens"]


def _tokens(model: AdaptiveModel) -> torch.Tensor:
    """Random token ids [1, S]."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.backbone.vocab_size, (1, _PROMPT + _ANSWER), generator=generator)
    return ids.to(model.backbone_model.device)
