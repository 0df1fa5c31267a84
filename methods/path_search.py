"""Searches for the layers that an answer can do without: over sets of skipped layers, for many rows at once.

A Monte Carlo tree search as in Dr.LLM (https://arxiv.org/abs/2510.12773, algorithm 1), without its repeated layers. A
node is a set of skipped layers; a child also skips one layer or two neighbouring ones. Each simulation descends one
tree per row by an upper confidence bound that favours short paths, tries the set it reaches, and rewards the nodes it
passed if the answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

EXPLORATION, LENGTH_PENALTY, RANDOM_CHILD = 1.8, 3.0, 0.1  # section 4: c, lambda, share of random children

Path = frozenset[int]  # skipped layers


class _Tree:
    """The search tree of one row: visits and rewards of its paths."""

    def __init__(self, layers: int, seed: int) -> None:
        self.layers, self.random = layers, Random(seed)
        self.visits: dict[Path, int] = {frozenset(): 0}
        self.rewards: dict[Path, float] = {frozenset(): 0.0}
        self.right: list[Path] = []

    def descend(self) -> list[Path]:
        """Nodes from the root to one that has not been tried yet or has no children."""
        way = [frozenset[int]()]
        while self.visits[way[-1]] and (children := self._children(way[-1])):
            if self.random.random() < RANDOM_CHILD:
                chosen = self.random.choice(children)
            else:
                chosen = max(children, key=lambda child: self._bound(child, self.visits[way[-1]]))
            way.append(chosen)
            self.visits.setdefault(chosen, 0)
            self.rewards.setdefault(chosen, 0.0)
        return way

    def learn(self, way: Sequence[Path], right: bool) -> None:
        """Record whether the answer was right with the last node of `way`."""
        for node in way:
            self.visits[node] += 1
            self.rewards[node] += right
        # Every right path is kept: the one with most skips is the label.
        if right:
            self.right.append(way[-1])

    def _children(self, node: Path) -> list[Path]:
        # A child leaves out one or two neighbouring layers more; one layer always stays.
        found = [
            node | set(range(first, first + count)) for count in (1, 2) for first in range(self.layers + 1 - count)
        ]
        return [child for child in dict.fromkeys(found) if child != node and len(child) < self.layers]

    def _bound(self, node: Path, parent_visits: int) -> float:
        visits = self.visits.get(node, 0)
        length = LENGTH_PENALTY * (self.layers - len(node)) / self.layers
        if not visits:
            return EXPLORATION * math.sqrt(math.log(parent_visits + 1)) + 1.0 - length  # as if right in one visit
        return self.rewards[node] / visits + EXPLORATION * math.sqrt(math.log(parent_visits) / visits) - length


def shortest_right_paths(
    is_right: Callable[[Tensor], Tensor], layers: int, seeds: Sequence[int], simulations: int
) -> tuple[Tensor, Tensor]:
    """Finds for each row the fewest layers with which its answer is right: the layers to keep [B, L], which are all
    layers for a row without a right path, and whether any path was right [B].

    Args:
        is_right: Given the layers to run [B, L], on the CPU, says whether each row's answer is right with them [B].
        seeds: Seed of each row's random choices [B].
        simulations: Paths to try for each row, of which the first runs every layer.
    """
    # One tree a row, so that a simulation is one forward pass for the whole batch.
    trees = [_Tree(layers, seed) for seed in seeds]
    for _ in range(simulations):
        ways = [tree.descend() for tree in trees]
        right = is_right(torch.stack([_kept(way[-1], layers) for way in ways])).tolist()
        for tree, way, one in zip(trees, ways, right, strict=True):
            tree.learn(way, bool(one))
    best = [max(tree.right, key=len, default=frozenset[int]()) for tree in trees]
    return torch.stack([_kept(path, layers) for path in best]), torch.tensor([bool(tree.right) for tree in trees])


def _kept(path: Path, layers: int) -> Tensor:
    return torch.tensor([layer not in path for layer in range(layers)])
