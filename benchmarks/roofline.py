"""Measures a device's peaks, and from them the least time for the counted work of a forward pass.

Peaks are measured with a large product and a large copy on the device itself, not taken from data sheets.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch

from adaptive_bench.engine.ledger import Ledger
from adaptive_bench.model.efficiency import Drive, in_turns
from adaptive_bench.store.evaluation import Work

ROUNDS = 10


@dataclass(frozen=True)
class Peaks:
    """The measured peaks of a device.

    Attributes:
        flops_per_s: In a product of two square matrices; a multiply-accumulate counts as two FLOPs.
        bytes_per_s: In a copy, bytes read and bytes written together.
    """

    flops_per_s: float
    bytes_per_s: float

    def floor_s(self, work: Counted) -> float:
        """The least time for some work: that of its products or of its reads, whichever is longer."""
        return max(work.flops / self.flops_per_s, work.read_bytes / self.bytes_per_s)

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Counted:
    """The work that the ledger counts for one call.

    Attributes:
        flops: FLOPs of everything executed.
        read_bytes: Weights, once per call; in decoding also the keys and values of every (query, key) pair.
    """

    flops: float
    read_bytes: float


def measure_peaks(device: torch.device, dtype: torch.dtype, side: int, copied: int) -> Peaks:
    """The peaks of a device, as medians over some rounds.

    Args:
        device: The device.
        dtype: Type of the matrices.
        side: Rows and columns of the matrices.
        copied: Bytes of the block that is copied.
    """
    one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(one)
    source = torch.zeros(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    taken = in_turns(
        {"product": lambda: torch.mm(one, other, out=product), "copy": lambda: target.copy_(source)},
        ROUNDS,
        device=device,
    )
    return Peaks(2 * side**3 / statistics.median(taken["product"]), 2 * copied / statistics.median(taken["copy"]))


def counted(drive: Drive, phase: Any, hidden: int, *, dense: bool = False) -> Counted:
    """The work of one call of a phase, averaged over the calls in a variant's ledger.

    Args:
        drive: The variant.
        phase: The phase.
        hidden: Width of the residual stream.
        dense: Give the dense model's work for the same calls instead.
    """
    ledger: Ledger | None = drive.ledger
    assert ledger is not None
    calls = ledger.calls[phase]
    macs = ledger.dense_macs(phase) if dense else ledger.macs(phase)
    read = ledger.dense_weight_bytes(phase) if dense else ledger.weight_bytes(phase)
    if phase == "decode":
        pairs = ledger.work[phase][:, Work.DENSE_PAIRS if dense else Work.PAIRS]
        # The key and value maps have one row of `hidden` weights for each cached value of a token.
        read += float((pairs * ledger.costs.attn_kv_bytes / hidden).sum())
    return Counted(2 * float(macs.sum()) / calls, read / calls)
