"""Rotary tables of a decoder: one pair for all layers, or one for each kind of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adaptive_bench.backbone.weights import Snapshot

_STATIC = ("default", "linear", "llama3")  # tables depend on the position alone

Tables = tuple[tuple[Tensor, Tensor], ...]  # (cos, sin) by kind


class RotaryTables:
    """What a decoder turns queries and keys by.

    Args:
        decoder: With `rotary_emb`, of which `rope_type` is one name, or one for each kind of layers.

    Attributes:
        kinds: [L] which of the pairs each layer uses.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        found = getattr(decoder.rotary_emb, "rope_type", None)
        self._types: dict[str | None, Any] = found if isinstance(found, dict) else {None: found}
        names = list(self._types)
        self.kinds = [0 if len(names) == 1 else names.index(layer.self_attn.layer_type) for layer in decoder.layers]
        self._known: tuple[Tables, Snapshot] | None = None

    @property
    def are_static(self) -> bool:
        """Whether rows depend on the position alone."""
        return all(each in _STATIC for each in self._types.values())

    def __call__(self, hidden: Tensor, positions: Tensor) -> Tables:
        """Pairs (cos, sin) [B, S, R] for positions [B, S], of the type and on the device of hidden states."""
        embed = self._decoder.rotary_emb
        return tuple(embed(hidden, positions, *([] if name is None else [name])) for name in self._types)

    def at(self, positions: Tensor, reach: int) -> Tables:
        """The same, looked up; `reach` is larger than every position. For calls of few tokens."""
        weight = self._decoder.embed_tokens.weight
        if not self.are_static:
            return self(weight, positions)
        known, frequencies = self._known, self._frequencies
        if (
            known is None
            or known[0][0][0].shape[0] < reach
            or (known[0][0][0].device, known[0][0][0].dtype) != (positions.device, weight.dtype)
            or not known[1].holds(frequencies, look=False)
        ):
            everything = torch.arange(max(256, 2 * reach), device=positions.device)[None]
            tables = tuple((cos[0], sin[0]) for cos, sin in self(weight, everything))
            known = self._known = (tables, Snapshot(frequencies))
        return tuple((cos[positions], sin[positions]) for cos, sin in known[0])

    @property
    def _frequencies(self) -> list[Tensor]:
        names = ("inv_freq" if name is None else f"{name}_inv_freq" for name in self._types)
        return [getattr(self._decoder.rotary_emb, name) for name in names]
