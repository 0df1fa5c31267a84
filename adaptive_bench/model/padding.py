"""Rows of token ids as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int]], device: torch.device, *, left: bool) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask [B, S]. The padding value is never looked at, so any valid id will do."""
    length = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        padding, real = [0] * (length - len(row)), [1] * len(row)
        ids.append([*padding, *row] if left else [*row, *padding])
        mask.append(padding + real if left else real + padding)
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
