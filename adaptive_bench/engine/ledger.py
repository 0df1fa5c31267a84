"""The ledger books every multiply-accumulate (MAC) the engine executes, and what the dense model would have needed.

Buckets (per layer, per phase):

* `core.*`      work that the decisions require, for real tokens and visible keys only;
* `overhead.*`  work that exists only because of the method (gates, routers, probes, K,V of skipped tokens, and
  `overhead.adapter` for what skipped tokens get instead of the branch);
* `waste.dense` work executed although nothing needed it: padding, keys behind the causal mask, masked execution.

Every map that runs for any token counts as reading its weights once per call: branches, gates, routers, probes, the
head, and the k and v projections if no token attends but K,V are repaired. Decoding a few rows is bound by these reads.

`core + overhead + waste` is what the hardware really executed, so it must equal a dispatcher-level FLOP count (two
FLOPs per MAC). Saved shares are relative to the dense model on the same tokens; they may be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.backbone import BRANCHES, LayerCosts
from adaptive_bench.method import Phase
from adaptive_bench.store.evaluation import BUCKETS, Work

PHASES: tuple[Phase, ...] = ("prefill", "decode")
_DEFERRED = 64  # on an accelerator, this many decode steps are booked together
_CORE = slice(0, 5)  # in `BUCKETS`
_OVERHEAD = slice(5, 8)  # `waste.dense` follows


class Report(dict[str, Any]):
    """A ledger's report, ready for JSON; printed, it takes about ten lines.

    `saved`, `prefill` and `decode` hold the saved shares of both phases together and of each phase: of token-branches
    (`tokens`), of MACs without and with the method's own (`core`, `net`), the latter also relative to the layers
    without the head (`layers`), of all executed MACs (`executed`), and of `weight_bytes`. `macs` are MACs by bucket,
    `sites` the share of tokens that executed each site, and `counts` the raw sums behind all of these.
    """

    def __repr__(self) -> str:
        counts, macs, columns = self["counts"], self["macs"], [f"{name:>14}" for name in self["saved"]]
        lines = [f"{'saved':<8}" + "".join(columns)]
        for name, part in (("all", "saved"), *zip(PHASES, PHASES, strict=True)):
            phases = PHASES if part == "saved" else (part,)
            calls, tokens = (sum(counts[phase][of] for phase in phases) for of in ("calls", "tokens"))
            shares = "".join(f"{'-' if share is None else f'{share:.1%}':>14}" for share in self[part].values())
            lines.append(f"{name:<8}{shares}   {tokens:,} tokens, {calls:,} calls")
        kinds = {
            kind: sum(value for name, value in macs.items() if name.startswith(kind))
            for kind in ("core", "overhead", "waste")
        }
        dense = sum(sum(counts[phase]["dense_macs"]) for phase in PHASES)
        lines.append(f"MACs: dense {dense:.4g}, " + ", ".join(f"{kind} {value:.4g}" for kind, value in kinds.items()))
        for branch in BRANCHES:
            executed = [site["executed"] for site in self["sites"] if site["branch"] == branch]
            shown = " ".join("-" if share is None else f"{100 * share:.0f}" for share in executed)
            lines += wrap(f"{branch}, % executed by layer: {shown}", 118, subsequent_indent="  ")
        return "\n".join(lines)


class Ledger:
    """Sums over all forward calls since the last reset.

    Args:
        costs: Costs of the L decoder layers; MACs have one more row for the language-model head.
    """

    def __init__(self, costs: LayerCosts) -> None:
        self.costs = costs
        self.num_layers = len(costs.mlp)
        self.reset()

    def reset(self) -> None:
        """Forget everything booked."""
        rows = self.num_layers + 1
        self._deferred: list[tuple[list[Tensor], Callable[[Sequence[np.ndarray]], None]]] = []
        # Counts since the last reset, priced by `costs` only when the ledger is read.
        self.work = {phase: np.zeros((self.num_layers, Work.COLUMNS)) for phase in PHASES}
        # Booked in MACs from the start: the head, what the method runs, and everything in added ledgers.
        self._macs = {phase: np.zeros((rows, len(BUCKETS))) for phase in PHASES}
        self._dense_macs = {phase: np.zeros(rows) for phase in PHASES}
        self._eligible = {phase: np.zeros((self.num_layers, len(BRANCHES))) for phase in PHASES}
        self._executed = {phase: np.zeros((self.num_layers, len(BRANCHES))) for phase in PHASES}
        self._weight_bytes = dict.fromkeys(PHASES, 0.0)
        self._dense_weight_bytes = dict.fromkeys(PHASES, 0.0)
        self.calls = dict.fromkeys(PHASES, 0)
        self.tokens = dict.fromkeys(PHASES, 0)
        self.runs: dict[Phase, dict[str, float]] = {phase: {} for phase in PHASES}
        # From added ledgers (`add`), whose MACs and bytes are already known.
        self._work = {phase: np.zeros((self.num_layers, Work.COLUMNS)) for phase in PHASES}
        self._foreign_calls = dict.fromkeys(PHASES, 0)

    def defer(self, tensors: list[Tensor], take: Callable[[Sequence[np.ndarray]], None]) -> None:
        """Book a call's notes later, together with others: when the ledger is read, or when many are waiting. `take`
        books them, given the values of the tensors.
        """
        self._deferred.append((tensors, take))
        if len(self._deferred) >= _DEFERRED:
            self.catch_up()

    def catch_up(self) -> None:
        """Book all deferred notes, with one read from the device."""
        waiting, self._deferred = self._deferred, []
        values = iter(read_together([tensor for tensors, _ in waiting for tensor in tensors]))
        for tensors, take in waiting:
            take([next(values) for _ in tensors])

    def reprice(self, costs: LayerCosts) -> None:
        """Use other costs from now on (weights of another dtype); work booked before keeps its old costs."""
        booked = self.counts()
        self.costs = costs
        self.reset()
        self.add(booked)

    def book(self, phase: Phase, layer: int, bucket: str, macs: float) -> None:
        """Add MACs to one bucket; `layer == num_layers` is the head."""
        self._macs[phase][layer, BUCKETS.index(bucket)] += macs

    def book_dense_head(self, phase: Phase, macs: float) -> None:
        """Add what the dense model's head needs for the same tokens."""
        self._dense_macs[phase][-1] += macs

    def count(self, phase: Phase, name: str, tokens: float) -> None:
        """Add tokens for which a map ran.

        Args:
            name: `head`: tokens whose logits were needed; `probe`: further runs of the head, in order to decide;
                `cosine`: cosines of two states, in order to decide; `rescale`: states scaled instead of a branch;
                `method.` and a name: one of the method's own linear maps.
        """
        runs = self.runs[phase]
        runs[name] = runs.get(name, 0.0) + tokens

    def read_weights(self, phase: Phase, read_bytes: float, dense: float = 0.0) -> None:
        """Add bytes of weights that a call reads outside the branches, and those that the dense model reads."""
        self._weight_bytes[phase] += read_bytes
        self._dense_weight_bytes[phase] += dense

    def macs(self, phase: Phase) -> np.ndarray:
        """[L + 1, buckets] executed MACs."""
        self.catch_up()
        work, costs = self.work[phase].T, self.costs
        kept, slots, seen = work[Work.ATTENTION_KEPT], work[Work.ATTENTION_SLOTS], work[Work.SEEN]
        # Slots of the k and v maps whose token neither attended nor needed a repair.
        spare = work[Work.PROJECTED] - kept - work[Work.REPAIRED]
        waste = (slots - kept) * costs.attn_q_o + spare * costs.attn_kv + (work[Work.PAIRS] - seen) * costs.pair
        waste += (work[Work.MLP_SLOTS] - work[Work.MLP_KEPT]) * costs.mlp
        columns = {
            "core.attn_q_o": kept * costs.attn_q_o,
            "core.attn_kv": kept * costs.attn_kv,
            "core.attn_mix": seen * costs.pair,
            "core.mlp": work[Work.MLP_KEPT] * costs.mlp,
            "overhead.kv_repair": work[Work.REPAIRED] * costs.attn_kv,
            "waste.dense": waste,
        }
        total = self._macs[phase].copy()
        for bucket, values in columns.items():
            total[:-1, BUCKETS.index(bucket)] += values
        return total

    def dense_macs(self, phase: Phase) -> np.ndarray:
        """[L + 1] MACs of the dense model on the same tokens."""
        self.catch_up()
        work, costs, total = self.work[phase].T, self.costs, self._dense_macs[phase].copy()
        linear = costs.attn_q_o + costs.attn_kv + costs.mlp
        total[:-1] += work[Work.DENSE_TOKENS] * linear + work[Work.DENSE_PAIRS] * costs.pair
        return total

    def eligible(self, phase: Phase) -> np.ndarray:
        """[L, branches] tokens that could execute each branch."""
        self.catch_up()
        return self._eligible[phase] + self.work[phase][:, [Work.ATTENTION_ELIGIBLE, Work.MLP_ELIGIBLE]]

    def executed(self, phase: Phase) -> np.ndarray:
        """[L, branches] tokens that executed each branch."""
        self.catch_up()
        return self._executed[phase] + self.work[phase][:, [Work.ATTENTION_KEPT, Work.MLP_KEPT]]

    def weight_bytes(self, phase: Phase) -> float:
        """Bytes of weights read."""
        self.catch_up()
        work, costs = self.work[phase].T, self.costs
        read = work[Work.ATTENTION_READS] * costs.attention_bytes + work[Work.MLP_READS] * costs.mlp_bytes
        read = read + work[Work.KV_READS] * costs.attn_kv_bytes
        return self._weight_bytes[phase] + float(read.sum())

    def dense_weight_bytes(self, phase: Phase) -> float:
        """Bytes of weights the dense model reads in the same calls."""
        self.catch_up()
        # Own calls only: added ledgers bring the bytes of theirs.
        once = float((self.costs.attention_bytes + self.costs.mlp_bytes).sum())
        return self._dense_weight_bytes[phase] + (self.calls[phase] - self._foreign_calls[phase]) * once

    def counts(self) -> dict[str, Any]:
        """Raw sums, ready for JSON; `add` adds them to a ledger. `work` and `runs` are the counts behind the MACs, from
        which the cost of the same decisions on another model can be computed.
        """
        return {
            phase: {
                "macs": self.macs(phase).tolist(),
                "dense_macs": self.dense_macs(phase).tolist(),
                "eligible": self.eligible(phase).tolist(),
                "executed": self.executed(phase).tolist(),
                "weight_bytes": self.weight_bytes(phase),
                "dense_weight_bytes": self.dense_weight_bytes(phase),
                "calls": self.calls[phase],
                "tokens": self.tokens[phase],
                "work": (self._work[phase] + self.work[phase]).tolist(),
                "runs": dict(self.runs[phase]),
            }
            for phase in PHASES
        }

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the raw sums of another ledger of the same model."""
        for phase in PHASES:
            part = counts[phase]
            for name in ("macs", "dense_macs", "eligible", "executed", "work"):
                # Into the private sums, which are not priced again: the other ledger's costs may differ (`reprice`).
                getattr(self, f"_{name}")[phase] += np.asarray(part[name])
            for name in ("_weight_bytes", "_dense_weight_bytes", "calls", "tokens"):
                getattr(self, name)[phase] += part[name.removeprefix("_")]
            self._foreign_calls[phase] += part["calls"]
            for name, tokens in part["runs"].items():
                self.count(phase, name, tokens)

    def total_macs(self) -> float:
        """Everything executed: core, overhead and waste of both phases."""
        return float(sum(self.macs(phase).sum() for phase in PHASES))

    def report(self) -> Report:
        """Saved shares pooled and by phase, MACs by bucket, executed share by site, and the raw sums."""
        counts = self.counts()
        return Report({**saved_shares(counts), **totals(counts), "counts": counts})


def saved_shares(counts: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Saved shares from raw sums (`Ledger.counts`): under `saved` those of both phases together, and under each phase
    its own. A share is `None` if the phase has no tokens.
    """
    parts: dict[str, tuple[Phase, ...]] = {"saved": PHASES, **{phase: (phase,) for phase in PHASES}}
    return {name: _saved([counts[phase] for phase in phases]) for name, phases in parts.items()}


def totals(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Totals of raw sums over both phases: `macs` by bucket, and for each site the share of tokens that executed it,
    `None` if no token could.
    """
    macs, eligible, executed = (
        np.asarray(counts["prefill"][name]) + np.asarray(counts["decode"][name])
        for name in ("macs", "eligible", "executed")
    )
    sites = []
    for at in np.ndindex(*eligible.shape):
        share = float(executed[at] / eligible[at]) if eligible[at] else None
        sites.append({"layer": at[0], "branch": BRANCHES[at[1]], "executed": share})
    return {"macs": dict(zip(BUCKETS, macs.sum(axis=0).tolist(), strict=True)), "sites": sites}


def _saved(parts: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    def total(name: str) -> float:
        return float(sum(np.sum(part[name]) for part in parts))

    macs, dense = np.sum([np.sum(part["macs"], axis=0) for part in parts], axis=0), total("dense_macs")
    layers = float(sum(np.sum(part["dense_macs"][:-1]) for part in parts))  # the last row is the head
    # Waste is left out: it belongs to the executor, not to the method.
    net = macs[_CORE].sum() + macs[_OVERHEAD].sum()
    return {
        "tokens": _saved_share(total("executed"), total("eligible")),
        "core": _saved_share(macs[_CORE].sum(), dense),
        "net": _saved_share(net, dense),
        # The head's share cancels in the difference, so this is the saving of the layers alone.
        "layers": float((dense - net) / layers) if layers else None,
        "executed": _saved_share(macs.sum(), dense),
        "weight_bytes": _saved_share(total("weight_bytes"), total("dense_weight_bytes")),
    }


def read_together(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Values of boolean and integer tensors, with one read from their device."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    # As one dtype, so that a single copy brings all of them.
    flat = torch.cat([tensor.flatten().long() for tensor in tensors]).cpu()
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape).to(tensor.dtype).numpy() for part, tensor in zip(parts, tensors, strict=True)]


def cosine_macs(hidden_size: int) -> int:
    """MACs of the cosine of two states: a product and two norms."""
    return 3 * hidden_size


def _saved_share(part: float, whole: float) -> float | None:
    return float(1 - part / whole) if whole else None
