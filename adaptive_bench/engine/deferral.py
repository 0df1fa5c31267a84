"""The KV policy `defer`: tokens that leave early wait, and go through the deep layers together with the next one
that does not.

This is FREE's synchronized parallel decoding. A waiting token has no K,V in the deep layers and none are needed,
since nobody queries there before the flush; at the flush it gets exactly the K,V of a full-depth pass. Tokens still
waiting when the text ends never go deep. Every row of a batch waits and flushes by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.engine.call import EngineCall

_STATES, _POSITIONS = "deferred_states", "deferred_positions"


def run_deferred(
    call: EngineCall,
    hidden: Tensor,
    keep: Tensor | None,
    layers: range,
    run_deep: Callable[[EngineCall, Tensor], Tensor],
) -> Tensor:
    """Final residual stream [B, S, H]: deep for tokens that stay, the exit state for those that left.

    Args:
        hidden: [B, S, H] before the first deep layer.
        keep: [B, S] tokens that do not leave here; `None` for all.
        layers: The deep layers.
        run_deep: Runs them for a call.
    """
    states, positions = _join_waiting(call, hidden)
    waiting_before = states.shape[1] - hidden.shape[1]
    stays = call.valid if keep is None else keep
    read = torch.cat([positions, stays.to(positions.dtype)], dim=1).cpu().numpy()  # both with one look at the device
    host_positions, staying = read[:, : states.shape[1]], read[:, states.shape[1] :].astype(bool) & call.host_valid
    joined = np.concatenate([np.zeros((len(staying), waiting_before), dtype=bool), staying], axis=1)
    # a token goes deep now if it or any later one of its row stays
    goes = np.flip(np.flip(joined, axis=1).cumsum(axis=1) > 0, axis=1) & (host_positions >= 0)
    _remember_waiting(call, states, positions, (host_positions >= 0) & ~goes)

    columns = _columns(goes)
    if not columns.shape[1]:
        if call.tally is not None:
            call.tally.book_idle(layers)
        return hidden
    valid, chosen = np.take_along_axis(goes, columns, axis=1), _put(columns, hidden)
    deep_positions = np.take_along_axis(host_positions, columns, axis=1).clip(min=0)
    packed_positions, real = _put(deep_positions, hidden), _put(valid, hidden)
    deep = replace(
        call,
        valid=real,
        host_valid=valid,
        positions=packed_positions,
        continuation=torch.zeros_like(real),
        input_ids=torch.zeros_like(chosen),
        rotary=call.backbone.rotary(hidden, packed_positions),
        tally=None if call.tally is None else call.tally.part(valid, deep_positions),
        ahead=None,
        _kept=None,
        _masks={},
    )
    places = chosen[..., None].expand(-1, -1, states.shape[-1])
    before = states.gather(1, places)
    out = run_deep(deep, before)
    if deep.tally is not None:
        deep.tally.settle()
    everything = states.scatter(1, places, torch.where(real[..., None], out, before))
    return torch.where(_put(staying, hidden)[..., None], everything[:, waiting_before:], hidden)


def _join_waiting(call: EngineCall, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Waiting tokens, then those of this call: states [B, W + S, H], positions [B, W + S] (-1: no token)."""
    state = call.session.state
    if _STATES not in state:
        return hidden, call.own_keys
    return torch.cat([state[_STATES], hidden], dim=1), torch.cat([state[_POSITIONS], call.own_keys], dim=1)


def _remember_waiting(call: EngineCall, states: Tensor, positions: Tensor, waits: np.ndarray) -> None:
    columns = _columns(waits)
    chosen = _put(columns, states)
    waiting = positions.gather(1, chosen)
    call.session.state[_STATES] = states.gather(1, chosen[..., None].expand(-1, -1, states.shape[-1]))
    call.session.state[_POSITIONS] = waiting.masked_fill(~_put(np.take_along_axis(waits, columns, axis=1), states), -1)


def _columns(chosen: np.ndarray) -> np.ndarray:
    """Columns [B, N] that hold every row's chosen tokens first, in order; N is the longest row's count."""
    width = int(chosen.sum(axis=1).max(initial=0))
    return np.argsort(~chosen, axis=1, kind="stable")[:, :width]


def _put(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like.device)
