"""The ledger books every multiply-accumulate (MAC) the engine executes, and what the dense model would have needed.

Buckets (per layer, per phase):

* `core.*`      work the decisions ask for, for real tokens and visible keys only;
* `overhead.*`  work that exists only because the method exists (gates, routers, probes, K,V of skipped tokens);
* `waste.dense` work executed although nothing needed it: padding, keys behind the causal mask, masked execution.

Weights count as read once per call by every map that runs for any token: branches, gates, routers, probes, the head,
and the k and v projections where nobody attends but K,V are repaired. That is what decoding a few rows is bound by.

`core + overhead + waste` is what the hardware really did, so it must equal a dispatcher-level FLOP count (two FLOPs
a MAC). Saved shares are taken against the dense model on the same tokens; they may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")
BUCKETS = (
    "core.attn_q_o",
    "core.attn_kv",
    "core.attn_mix",
    "core.mlp",
    "core.head",
    "overhead.decision",
    "overhead.kv_repair",
    "overhead.adapter",
    "waste.dense",
)
BRANCHES = ("attention", "mlp")
_CORE = slice(0, 5)
_OVERHEAD = slice(5, 8)


class Ledger:
    """Sums over all forward calls since the last reset.

    Args:
        num_layers: Decoder layers; one more row holds the language-model head.
    """

    def __init__(self, num_layers: int) -> None:
        self.num_layers = num_layers
        self.reset()

    def reset(self) -> None:
        """Forget everything booked."""
        rows = self.num_layers + 1
        self.macs = {phase: np.zeros((rows, len(BUCKETS))) for phase in PHASES}
        self.dense_macs = {phase: np.zeros(rows) for phase in PHASES}
        self.eligible = {phase: np.zeros((self.num_layers, len(BRANCHES))) for phase in PHASES}
        self.executed = {phase: np.zeros((self.num_layers, len(BRANCHES))) for phase in PHASES}
        self.weight_bytes = dict.fromkeys(PHASES, 0.0)
        self.dense_weight_bytes = dict.fromkeys(PHASES, 0.0)
        self.calls = dict.fromkeys(PHASES, 0)
        self.tokens = dict.fromkeys(PHASES, 0)

    def book(self, phase: Phase, layers: int | np.ndarray, bucket: str, macs: float | np.ndarray) -> None:
        """Add MACs to one bucket, of one layer or of several different ones; `num_layers` is the head."""
        self.macs[phase][layers, BUCKETS.index(bucket)] += macs

    def book_dense(self, phase: Phase, layer: int, macs: float) -> None:
        """Add what the dense model needs for the same tokens."""
        self.dense_macs[phase][layer] += macs

    def count(self, phase: Phase, layers: np.ndarray, branch: str, eligible: int, executed: np.ndarray) -> None:
        """Count the token-branches of different layers: real tokens that could execute and that did."""
        column = BRANCHES.index(branch)
        self.eligible[phase][layers, column] += eligible
        self.executed[phase][layers, column] += executed

    def read_weights(self, phase: Phase, read_bytes: float, dense: float = 0.0) -> None:
        """Add bytes of weights that a call reads, and what the dense model reads instead."""
        self.weight_bytes[phase] += read_bytes
        self.dense_weight_bytes[phase] += dense

    def counts(self) -> dict[str, Any]:
        """Raw sums, ready for JSON. `add` takes them back."""
        return {
            phase: {
                "macs": self.macs[phase].tolist(),
                "dense_macs": self.dense_macs[phase].tolist(),
                "eligible": self.eligible[phase].tolist(),
                "executed": self.executed[phase].tolist(),
                "weight_bytes": self.weight_bytes[phase],
                "dense_weight_bytes": self.dense_weight_bytes[phase],
                "calls": self.calls[phase],
                "tokens": self.tokens[phase],
            }
            for phase in PHASES
        }

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the raw sums of another ledger of the same model."""
        for phase in PHASES:
            part = counts[phase]
            for name in ("macs", "dense_macs", "eligible", "executed"):
                getattr(self, name)[phase] += np.asarray(part[name])
            for name in ("weight_bytes", "dense_weight_bytes", "calls", "tokens"):
                getattr(self, name)[phase] += part[name]

    def total_macs(self) -> float:
        """Everything executed: core, overhead and waste of both phases."""
        return float(sum(self.macs[phase].sum() for phase in PHASES))

    def report(self) -> dict[str, Any]:
        """Saved shares pooled and by phase, MACs by bucket, executed share by site, and the raw sums."""
        pooled = (self.macs["prefill"] + self.macs["decode"]).sum(axis=0)
        eligible = self.eligible["prefill"] + self.eligible["decode"]
        executed = self.executed["prefill"] + self.executed["decode"]
        return {
            "saved": self._saved(PHASES),
            **{phase: self._saved((phase,)) for phase in PHASES},
            "macs": dict(zip(BUCKETS, pooled.tolist(), strict=True)),
            "sites": [
                {"layer": layer, "branch": branch, "executed": _share(executed[layer, column], eligible[layer, column])}
                for layer in range(self.num_layers)
                for column, branch in enumerate(BRANCHES)
            ],
            "counts": self.counts(),
        }

    def _saved(self, phases: tuple[Phase, ...]) -> dict[str, float | None]:
        macs = sum(self.macs[phase].sum(axis=0) for phase in phases)
        dense = sum(self.dense_macs[phase].sum() for phase in phases)
        core, overhead, everything = macs[_CORE].sum(), macs[_OVERHEAD].sum(), macs.sum()
        return {
            "tokens": _saved_share(
                sum(self.executed[p].sum() for p in phases), sum(self.eligible[p].sum() for p in phases)
            ),
            "core": _saved_share(core, dense),
            "net": _saved_share(core + overhead, dense),
            "executed": _saved_share(everything, dense),
            "weight_bytes": _saved_share(
                sum(self.weight_bytes[p] for p in phases), sum(self.dense_weight_bytes[p] for p in phases)
            ),
        }


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _saved_share(part: float, whole: float) -> float | None:
    return float(1 - part / whole) if whole else None
