"""Attention masks from positions: a query sees every stored key at or before its own position, inside the window."""

from __future__ import annotations

import torch
from torch import Tensor


def visible_keys(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """Which keys each query sees.

    Args:
        query_positions: [B, N].
        key_positions: [B, T], -1 where a slot shows nothing.
        window: Sliding-window size in tokens, or `None`.

    Returns:
        Boolean [B, N, T].
    """
    queries, keys = query_positions[:, :, None], key_positions[:, None, :]
    seen = (keys >= 0) & (keys <= queries)
    return seen if window is None else seen & (keys > queries - window)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Boolean [B, N, T] to the additive float mask [B, 1, N, T] every attention implementation takes."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill(~seen, torch.finfo(dtype).min)[:, None]
