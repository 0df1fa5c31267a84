"""The KV policy `defer`: tokens that leave early wait, and go through the deep layers together with the next one
that does not.

This is FREE's synchronized parallel decoding. A waiting token has no K,V in the deep layers and none are needed,
since nobody queries there before the flush; at the flush it gets exactly the K,V of a full-depth pass. Tokens still
waiting when the text ends never go deep. Every row of a batch waits and flushes by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from adaptive_bench.engine.booking import book_idle
from adaptive_bench.engine.call import ForwardCall

_STATES, _POSITIONS = "deferred_states", "deferred_positions"


def run_deferred(
    call: ForwardCall, hidden: Tensor, stays: Tensor, layers: range, run_deep: Callable[[ForwardCall, Tensor], Tensor]
) -> Tensor:
    """Final residual stream [B, S, H]: deep for tokens that stay, the exit state for those that left.

    Args:
        hidden: [B, S, H] before the first deep layer.
        stays: [B, S] real tokens that do not leave here.
        layers: The deep layers.
        run_deep: Runs them for a call.
    """
    states, positions = _join_waiting(call, hidden)
    waiting_before = states.shape[1] - hidden.shape[1]
    joined_stays = torch.cat([torch.zeros_like(positions[:, :waiting_before], dtype=torch.bool), stays], dim=1)
    # a token goes deep now if it or any later one of its row stays
    goes = joined_stays.flip(1).cumsum(dim=1).flip(1).bool() & (positions >= 0)
    _remember_waiting(call, states, positions.masked_fill(goes, -1))

    columns = _columns(goes)
    if not columns.shape[1]:
        book_idle(call, layers)
        return hidden
    valid = goes.gather(1, columns)
    chosen = columns[..., None].expand(-1, -1, states.shape[-1])
    packed_positions = positions.gather(1, columns).clamp(min=0)
    deep = replace(
        call,
        valid=valid,
        positions=packed_positions,
        continuation=torch.zeros_like(valid),
        input_ids=torch.zeros_like(columns),
        rotary=call.backbone.rotary(hidden, packed_positions),
        eligible=call.num_valid,
    )
    out = run_deep(deep, states.gather(1, chosen))
    everything = states.scatter(1, chosen, torch.where(valid[..., None], out, states.gather(1, chosen)))
    return torch.where(stays[..., None], everything[:, waiting_before:], hidden)


def _join_waiting(call: ForwardCall, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Waiting tokens, then those of this call: states [B, W + S, H], positions [B, W + S] (-1: no token)."""
    positions = call.positions.masked_fill(~call.valid, -1)
    state = call.session.state
    if _STATES not in state:
        return hidden, positions
    return torch.cat([state[_STATES], hidden], dim=1), torch.cat([state[_POSITIONS], positions], dim=1)


def _remember_waiting(call: ForwardCall, states: Tensor, positions: Tensor) -> None:
    columns = _columns(positions >= 0)
    call.session.state[_STATES] = states.gather(1, columns[..., None].expand(-1, -1, states.shape[-1]))
    call.session.state[_POSITIONS] = positions.gather(1, columns)


def _columns(chosen: Tensor) -> Tensor:
    """Columns [B, N] that hold every row's chosen tokens first, in order; N is the longest row's count."""
    width = int(chosen.sum(dim=1).max()) if chosen.numel() else 0
    return (~chosen).long().argsort(dim=1, stable=True)[:, :width]
