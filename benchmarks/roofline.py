"""What a device can do at most, measured, and how long the counted work of a forward pass takes there at least.

Peaks are those of a large product and of a large copy on the device itself: no table of data sheets.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch

from adaptive_bench.engine.ledger import Ledger, Work
from adaptive_bench.model.efficiency import Drive, in_turns

ROUNDS = 10


@dataclass(frozen=True)
class Peaks:
    """The most that a device was seen to do.

    Attributes:
        flops_per_s: In a product of two square matrices; two FLOPs a multiply-accumulate.
        bytes_per_s: In a copy, bytes read and bytes written together.
    """

    flops_per_s: float
    bytes_per_s: float

    def floor_s(self, work: Counted) -> float:
        """The least time for some work: of its products or of its reading, whichever takes longer."""
        return max(work.flops / self.flops_per_s, work.read_bytes / self.bytes_per_s)

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Counted:
    """What the ledger counts for one call.

    Attributes:
        flops: Of everything executed.
        read_bytes: Weights once a call; in decoding also the keys and values of every (query, key) pair.
    """

    flops: float
    read_bytes: float


def measure_peaks(device: torch.device, dtype: torch.dtype, side: int, copied: int) -> Peaks:
    """Medians over some rounds.

    Args:
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
    """One call of a phase, on average over the calls that a variant's ledger holds.

    Args:
        hidden: Width of the residual stream.
        dense: What the dense model needs for the same calls instead.
    """
    ledger: Ledger | None = drive.ledger
    assert ledger is not None
    calls = ledger.calls[phase]
    macs = ledger.dense_macs(phase) if dense else ledger.macs(phase)
    read = ledger.dense_weight_bytes(phase) if dense else ledger.weight_bytes(phase)
    if phase == "decode":
        pairs = ledger.work[phase][:, Work.DENSE_PAIRS if dense else Work.PAIRS]
        # The maps to k and v have a row of `hidden` weights for each value that they leave behind for a token.
        read += float((pairs * ledger.costs.attn_kv_bytes / hidden).sum())
    return Counted(2 * float(macs.sum()) / calls, read / calls)
