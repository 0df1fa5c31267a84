"""The data order: the single order in which every method of a run sees the training text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.training.encoding import EncodedExample


class DataOrder:
    """The order of examples: `order[step]` is the tuple of example indices of one optimizer step, counted from 0.

    Each epoch goes through the examples in its own seeded permutation. Any step can be computed directly, so a resumed
    training needs no replay. The order depends only on the count, the batch size and the seed.
    """

    def __init__(self, count: int, batch_size: int, steps: int, seed: int) -> None:
        if count < 1 and steps:
            raise EnvironmentProblem("Training needs at least one example, got none. Check the data of train_on.")
        self.count, self.batch_size, self.steps, self.seed = count, batch_size, steps, seed
        # A step may reach from one epoch into the next.
        self._epoch = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, epoch: int) -> list[int]:
        permutation: list[int] = np.random.default_rng([self.seed, epoch]).permutation(self.count).tolist()
        return permutation

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> tuple[int, ...]:
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of {self.steps}")
        positions = range(step * self.batch_size, (step + 1) * self.batch_size)
        return tuple(self._epoch(position // self.count)[position % self.count] for position in positions)


def order_digest(examples: Sequence[EncodedExample], order: DataOrder) -> str:
    """The sha256 of the token ids in training order: equal digests mean equal tokens in equal order."""
    digest = hashlib.sha256()
    for step in range(len(order)):
        for example in (examples[index] for index in order[step]):
            # With the lengths, so that tokens cannot move from one example to the next unnoticed.
            header = (len(example.token_ids), example.prompt_length)
            # Little-endian and 64 bits wide: the same bytes on every machine.
            digest.update(np.array([*header, *example.token_ids], dtype="<i8").tobytes())
    return digest.hexdigest()
