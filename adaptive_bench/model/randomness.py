"""Counter-based random numbers: a draw depends on a counter and a key, never on what was drawn before.

So a decision is the same with or without a cache, in any batch and on any device, and a resumed training repeats it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def uniform_from(counters: Tensor, key: int) -> Tensor:
    """Uniform numbers in [0, 1) from 64-bit counters and a key (the finaliser of SplitMix64, Steele et al. 2014)."""
    mixed = counters + _signed(key * 0x9E3779B97F4A7C15)
    mixed = (mixed ^ _shift_right(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shift_right(mixed, 27)) * _signed(0x94D049BB133111EB)
    mixed = mixed ^ _shift_right(mixed, 31)
    return _shift_right(mixed, 11).to(torch.float64) * 2.0**-53


def draw_key(seed: int, step: int, site: int) -> int:
    """One key per seed, training step (0 at inference) and site."""
    return (seed * 1_000_003 + step) * 4_096 + site


def _signed(value: int) -> int:
    """The low 64 bits as a signed integer, which is what torch holds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Logical shift of signed 64-bit integers."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
