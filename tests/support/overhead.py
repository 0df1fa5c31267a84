"""Counts what a method adds to a model: parameters, and multiply-accumulates for deciding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.store.evaluation import BUCKETS

_PROMPT, _ANSWER = 4, 16  # tokens of the calls that count decision MACs
_TRAVELS = (0.0, 0.01, 0.5, 1.0)  # dial positions; probes cost most just off 0, where all are run and few tokens pass


@dataclass(frozen=True)
class Overhead:
    """Costs of one method on one backbone.

    Attributes:
        parameters: Number of the method's own parameters.
        backbone_parameters: Number of the backbone's parameters.
        parameter_bytes: Memory of the method's parameters and buffers.
        decision_macs: Multiply-accumulates for deciding, per generated token, at the dial value where they are most
            (a probe costs only while there is something to decide).
        adapter_macs: Multiply-accumulates for `Decision.otherwise`, likewise.
        dense_macs: Multiply-accumulates of the model without the method, per token.
    """

    parameters: int
    backbone_parameters: int
    parameter_bytes: int
    decision_macs: float
    adapter_macs: float
    dense_macs: float


@torch.no_grad()
def measure_overhead(model: AdaptiveModel) -> Overhead:
    """Count the method's parameters, and run the model on random tokens over its whole dial to measure the cost of
    deciding. This changes the model's dial, thresholds and ledger.
    """
    method = model.method
    own = [*method.parameters(), *method.buffers()]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.backbone.vocab_size, (1, _PROMPT + _ANSWER), generator=generator).to(model.device)
    everything = torch.ones_like(ids)
    batch = {"input_ids": ids, "attention_mask": everything, "continuation_mask": everything.bool()}
    model.prepare_training([batch])
    if method.thresholds is not None or method.fitted is not None:  # the largest saving makes every smaller one usable
        model.calibrate([batch], [method.max_saving])
    costs = [_costs_per_token(model, ids, method.dial.at(travel)) for travel in _TRAVELS]
    decision, adapter, dense = map(max, zip(*costs, strict=True))
    return Overhead(
        parameters=sum(parameter.numel() for parameter in method.parameters()),
        backbone_parameters=sum(parameter.numel() for parameter in model.backbone_model.parameters()),
        parameter_bytes=sum(tensor.nbytes for tensor in own),
        decision_macs=decision,
        adapter_macs=adapter,
        dense_macs=dense,
    )


def _costs_per_token(model: AdaptiveModel, ids: Tensor, dial: float) -> tuple[float, float, float]:
    """MACs per generated token: for deciding, for replacements of branches, and of the dense model."""
    model.eval()
    model.dial = dial
    prompt = model(ids[:, :_PROMPT], use_cache=True, logits_to_keep=1)
    model.reset_ledger()
    model(ids[:, _PROMPT:], past_key_values=prompt.past_key_values, use_cache=True)
    counts = model.compute_report()["counts"]["decode"]
    own = (BUCKETS.index(name) for name in ("overhead.decision", "overhead.adapter"))
    decision, adapter = (sum(row[column] for row in counts["macs"]) / counts["tokens"] for column in own)
    return decision, adapter, sum(counts["dense_macs"]) / counts["tokens"]
