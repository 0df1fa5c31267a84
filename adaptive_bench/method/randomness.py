"""Counter-based random numbers: a draw depends on a counter and a key, never on what was drawn before.

So a decision is the same with or without a cache, in any batch and on any device, and a resumed training repeats it.
The counters are `call.draw_counters`, which differ from token to token and from document to document; the key is
`draw_key(seed, step, site)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def uniforms_from(counters: Tensor, keys: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1), [K, *], from 64-bit counters [*] and K keys.

    The finaliser of SplitMix64 (Steele et al. 2014).
    """
    offsets = _offsets(tuple(keys), counters.device)
    mixed = counters + offsets.view(-1, *[1] * counters.dim())
    mixed = (mixed ^ _shift_right(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shift_right(mixed, 27)) * _signed(0x94D049BB133111EB)
    mixed = mixed ^ _shift_right(mixed, 31)
    return _shift_right(mixed, 11).to(torch.float64) * 2.0**-53


@lru_cache(maxsize=16)
def _offsets(keys: tuple[int, ...], device: torch.device) -> Tensor:
    """[K] where the counters of each key start."""
    return torch.tensor([_signed(key * 0x9E3779B97F4A7C15) for key in keys], device=device)


def uniform_from(counters: Tensor, key: int) -> Tensor:
    """Uniform numbers in [0, 1), [*], from 64-bit counters [*] and a key."""
    return uniforms_from(counters, [key])[0]


def draw_key(seed: int, step: int, site: int) -> int:
    """One key per seed, training step (0 at inference) and site."""
    return (seed * 1_000_003 + step) * 4_096 + site


def document_key(*identity: str | int) -> int:
    """The 64-bit key of a document, from what tells it from all others: a task's name and the number there, say.

    Random draws of different keys are independent whatever the documents have in common.
    """
    digest = hashlib.blake2b("\n".join(map(repr, identity)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _signed(value: int) -> int:
    """The low 64 bits as a signed integer, which is what torch holds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Logical shift of signed 64-bit integers."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
