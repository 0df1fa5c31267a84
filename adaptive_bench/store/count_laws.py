"""What the counts of a measured point have to be, whatever was measured: one part of them follows from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from adaptive_bench.store.counts import BUCKETS, Work

_ROUNDING = 1e-9  # another machine sums in another order
_DECISION, _HEAD = BUCKETS.index("overhead.decision"), BUCKETS.index("core.head")
_KEPT = [Work.ATTENTION_KEPT, Work.MLP_KEPT]
_ELIGIBLE = [Work.ATTENTION_ELIGIBLE, Work.MLP_ELIGIBLE]
# Of a layer: MACs of a bucket, and the column whose counts they are a multiple of.
_PRICED = {
    "core.attn_q_o": Work.ATTENTION_KEPT,
    "core.attn_kv": Work.ATTENTION_KEPT,
    "core.attn_mix": Work.SEEN,
    "core.mlp": Work.MLP_KEPT,
}
# Never more of the first than of the second.
_AT_MOST = {
    "attention kept of eligible": (Work.ATTENTION_KEPT, Work.ATTENTION_ELIGIBLE),
    "MLP kept of eligible": (Work.MLP_KEPT, Work.MLP_ELIGIBLE),
    "attention kept of slots": (Work.ATTENTION_KEPT, Work.ATTENTION_SLOTS),
    "MLP kept of slots": (Work.MLP_KEPT, Work.MLP_SLOTS),
    "pairs seen of executed": (Work.SEEN, Work.PAIRS),
}
PHASES = ("prefill", "decode")


def broken_laws(counts: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what counts cannot be; those of early records, which have sums of MACs alone, are not asked.

    Args:
        counts: Of a compute report, by phase.
    """
    if any("work" not in counts[phase] for phase in PHASES):
        return
    try:
        parts = {phase: _Part(counts[phase]) for phase in PHASES}
    except (KeyError, TypeError, ValueError) as error:
        yield f"counts are lists of numbers, a row for each layer ({error})"
        return
    for phase, part in parts.items():
        yield from (f"{phase} {said}" for said in part.wrong())
    if not any(part.is_odd for part in parts.values()):
        yield from _wrong_prices(parts)


class _Part:
    """Counts of a phase as arrays: `work` [L, 15], `macs` [L + 1, buckets], `dense` [L + 1], two branches a layer."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.work, self.macs = (np.array(values[name], dtype=float) for name in ("work", "macs"))
        self.dense = np.array(values["dense_macs"], dtype=float)
        self.branches = {name: np.array(values[name], dtype=float) for name in ("executed", "eligible")}
        self.tokens, self.calls = float(values["tokens"]), float(values["calls"])
        self.runs = {str(name): float(count) for name, count in values["runs"].items()}
        self.bytes = [float(values[name]) for name in ("weight_bytes", "dense_weight_bytes")]
        layers = len(self.work)
        shapes = [array.shape for array in (self.work, self.macs, self.dense, *self.branches.values())]
        wanted = [(layers, Work.COLUMNS), (layers + 1, len(BUCKETS)), (layers + 1,), (layers, 2), (layers, 2)]
        if shapes != wanted:
            raise ValueError(f"shapes {shapes}, by the layers {wanted}")
        macs = self.macs.copy()
        # Where a decision is made with the head, the token it says is not asked of the head again: less is booked.
        macs[:, _DECISION] = macs[:, _DECISION].sum() + macs[:, _HEAD].sum()
        numbers = (self.work, macs, self.dense, *self.branches.values(), self.bytes, list(self.runs.values()))
        every = np.concatenate([np.asarray(one).ravel() for one in numbers] + [np.array([self.tokens, self.calls])])
        self.is_odd = not np.isfinite(every).all() or bool((every < 0).any())

    def wrong(self) -> Iterator[str]:
        if self.is_odd:
            yield "counts are below zero or not finite"
            return
        if (self.tokens > 0) != (self.dense.sum() > 0) or (self.tokens > 0) != (self.calls > 0):
            dense = f"{self.dense.sum():g} MACs of the dense model"
            yield f"counts {self.tokens:g} tokens in {self.calls:g} calls and {dense}"
        if (self.work[:, Work.DENSE_TOKENS] != self.tokens).any():
            yield f"counts {self.tokens:g} tokens, and others for the dense model's layers"
        for name, columns in (("executed", _KEPT), ("eligible", _ELIGIBLE)):
            if not _same(self.branches[name], self.work[:, columns]):
                yield f"{name} tokens are not those of its work"
        for name, (part, whole) in _AT_MOST.items():
            if (self.work[:, part] > self.work[:, whole] * (1 + _ROUNDING)).any():
                yield f"counts more {name}"


def _wrong_prices(parts: Mapping[str, _Part]) -> Iterator[str]:
    """A layer has one price for a token and one for a pair, in both phases, for the dense model too."""
    prices: dict[str, np.ndarray] = {}
    for bucket, column in _PRICED.items():
        place = BUCKETS.index(bucket)
        macs = {phase: part.macs[:-1, place] for phase, part in parts.items()}
        times = {phase: part.work[:, column] for phase, part in parts.items()}
        with np.errstate(divide="ignore", invalid="ignore"):
            # Of either phase together; nan where nobody ran it.
            price = (macs["prefill"] + macs["decode"]) / (times["prefill"] + times["decode"])
        prices[bucket] = price
        for phase in parts:
            if not _same(macs[phase], np.nan_to_num(price) * times[phase]):
                yield f"{phase} MACs of {bucket} are not those of its work"
    head = {phase: part.macs[:, _HEAD].sum() for phase, part in parts.items()}
    asked = {phase: part.runs.get("head", 0.0) for phase, part in parts.items()}
    if not np.isclose(head["prefill"] * asked["decode"], head["decode"] * asked["prefill"], rtol=_ROUNDING):
        yield "MACs of core.head are not those of how often it ran"
    linear = prices["core.attn_q_o"] + prices["core.attn_kv"] + prices["core.mlp"]
    for phase, part in parts.items():
        dense = part.work[:, Work.DENSE_TOKENS] * linear + part.work[:, Work.DENSE_PAIRS] * prices["core.attn_mix"]
        known = np.isfinite(dense)
        if not _same(part.dense[:-1][known], dense[known]):
            yield f"{phase} MACs of the dense model are not those of its tokens"
        repaired = part.work[:, Work.REPAIRED] * prices["core.attn_kv"]
        known = np.isfinite(repaired)
        if not _same(part.macs[:-1, BUCKETS.index("overhead.kv_repair")][known], repaired[known]):
            yield f"{phase} MACs of overhead.kv_repair are not those of its work"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING))
