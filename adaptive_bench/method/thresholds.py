"""Thresholds on scores, which make a score-ranking method causal and batch-free.

Whether a token executes depends on its own score only. `adaptive_bench.model.calibration` measures the thresholds on
held-out training text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method.decisions import drop_lowest_by_phase
from adaptive_bench.method.site_view import SiteView


class Thresholds:
    """Thresholds for every site, phase (0 prompt, 1 continuation) and calibrated skip share.

    Args:
        sites: Numbers (`Site.number`) of the sites that decide.
    """

    def __init__(self, sites: Iterable[int]) -> None:
        self.sites = tuple(sites)
        self.shares = torch.zeros(0, dtype=torch.float64)
        # [shares, phases, sites]; row n belongs to `shares[n]`, and shares ascend.
        self.values = torch.zeros(0, 2, len(self.sites), dtype=torch.float64)
        # By (phase, site); `None` unless scores are being recorded.
        self._collected: dict[tuple[int, int], list[Tensor]] | None = None
        self._columns = {site: column for column, site in enumerate(self.sites)}
        self._ready: dict[tuple[float, torch.device, torch.dtype], Tensor] = {}  # rows of `at`, cached on the device

    def keep(self, view: SiteView, scores: Tensor, share: float) -> Tensor | None:
        """Keep mask [B, S]: a token skips if and only if its score < threshold. `None` (all execute) for share 0.

        Args:
            scores: [B, S] in fp32.
            share: Share of tokens to skip at this site.
        """
        if view.site.number not in self._columns or not -1e-9 <= share <= 1 + 1e-9:
            raise PluginFault(
                f"Thresholds are asked for a share from 0 to 1 (0.2 is 20 %) at one of their own sites, got "
                f"{share!r} at site number {view.site.number}; their sites are {_listed(self.sites)}. Give keep() "
                f"self.skip_share, and Thresholds(sites) all sites that decide."
            )
        view.scores = scores
        # Before the test of the share: a site counts as asked even at a share of 0.
        if self._collected is not None:
            return self._collect(view, scores, share)
        if share <= 0.0:
            return None
        ready = (share, scores.device, scores.dtype)
        if ready not in self._ready:
            self._ready[ready] = self.at(share).to(scores)
        thresholds = self._ready[ready][:, self._columns[view.site.number]]
        return scores >= torch.where(view.call.continuation, thresholds[1], thresholds[0])

    def at(self, share: float) -> Tensor:
        """Thresholds [2, sites] for a share: as measured for a calibrated share, interpolated linearly between two.

        Measured thresholds may fall a little from one share to a larger one, because earlier sites then skip other
        tokens. Interpolated thresholds never fall: the larger share's threshold counts as at least the smaller one's.
        """
        if not self.shares.numel() or not self.shares[0] <= share <= self.shares[-1] + 1e-9:
            known = f"{float(self.shares[0]):g} .. {float(self.shares[-1]):g}" if self.shares.numel() else "nothing"
            raise UsageError(
                f"Thresholds must be calibrated for the skip share before use, got {share:g} with {known} calibrated. "
                "Ask for a smaller share, or call model.calibrate(batches, savings) with a saving at least that large."
            )
        # The first calibrated share that is not below the wanted one.
        upper = int(torch.searchsorted(self.shares, share - 1e-9).clamp(max=self.shares.numel() - 1))
        if upper == 0 or abs(float(self.shares[upper]) - share) < 1e-9:
            return self.values[upper]
        low, high = self.shares[upper - 1], self.shares[upper]
        weight = (share - low) / (high - low)
        below = self.values[upper - 1]
        return (1 - weight) * below + weight * self.values[upper].maximum(below)

    @property
    def largest(self) -> float:
        """The largest calibrated share; 0 if nothing is calibrated."""
        return float(self.shares[-1]) if self.shares.numel() else 0.0

    @property
    def unasked(self) -> list[int]:
        """The sites that recorded no score since `collect`."""
        recorded = self._collected or {}
        # `_collect` appends to both phases, if only an empty tensor, so one of them tells.
        return [site for site in self.sites if not recorded.get((0, site))]

    def collect(self) -> None:
        """Start recording scores; until `finish`, `keep` drops exactly the wanted share of each batch."""
        self._collected = {(phase, site): [] for phase in range(2) for site in self.sites}

    def stop_collecting(self) -> None:
        """Discard the recorded scores and apply thresholds again."""
        self._collected = None

    def finish(self, share: float) -> None:
        """Turn the recorded scores into the thresholds of a share, and apply thresholds again."""
        assert self._collected is not None
        collected, self._collected = self._collected, None
        row = torch.zeros(2, len(self.sites), dtype=torch.float64)
        lowest = torch.zeros_like(row)
        for column, site in enumerate(self.sites):
            for phase in range(2):
                scores = torch.cat(collected[phase, site]).double()
                # A text without prompts, or with prompts alone: the other phase's scores are the best there is.
                scores = scores if scores.numel() else torch.cat(collected[1 - phase, site]).double()
                row[phase, column] = torch.quantile(scores, share)
                lowest[phase, column] = scores.min()
        if not self.shares.numel() or share <= self.shares[1] + 1e-9:  # share 0 goes with the smallest calibrated one
            self._insert(0.0, lowest)
        self._insert(share, row)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return {"shares": self.shares, "values": self.values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors from `state`."""
        self.shares, self.values = state["shares"].double(), state["values"].double()
        self._ready.clear()

    def clear(self) -> None:
        """Forget every threshold (the weights changed)."""
        self.shares, self.values = self.shares[:0], self.values[:0]
        self._ready.clear()

    def _collect(self, view: SiteView, scores: Tensor, share: float) -> Tensor:
        assert self._collected is not None
        valid, continuation = view.call.valid, view.call.continuation
        for phase, chosen in enumerate((~continuation, continuation)):
            self._collected[phase, view.site.number].append(scores[chosen & valid].detach().float().cpu())
        return drop_lowest_by_phase(scores, valid, continuation, share)

    def _insert(self, share: float, row: Tensor) -> None:
        # A new measurement replaces an earlier one of the same share.
        known = (self.shares - share).abs() < 1e-9
        shares = torch.cat([self.shares[~known], torch.tensor([share], dtype=torch.float64)])
        values = torch.cat([self.values[~known], row[None]])
        order = shares.argsort()
        self.shares, self.values = shares[order], values[order]
        self._ready.clear()


def _listed(sites: tuple[int, ...]) -> str:
    return ", ".join(map(str, sites)) if len(sites) < 10 else f"{sites[0]} to {sites[-1]} ({len(sites)} in all)"
