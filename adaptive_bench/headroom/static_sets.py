"""Which layers to leave out for everybody: the floor that every adaptive method has to beat.

Of each number of layers left out the sets whose predictions move least on validation text go on (exactly, among all
subsets, where these are few; else by greedy deletion, one layer more at a time). Validation documents decide among
them. Layers are left out of the model as it is, without training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

from transformers import PreTrainedModel

from adaptive_bench.headroom.divergence import FullModel
from adaptive_bench.model.prescribed import static_model
from adaptive_bench.progress import Reporter

# All subsets of a number of layers are tried where they are no more than so many; 2^8 is a small model's.
MOST_SUBSETS = 256
FINALISTS = 3  # of one number of layers


@dataclass(frozen=True)
class LayerSet:
    """Layers that are left out.

    Attributes:
        skipped: Their numbers, rising.
        divergence: Mean KL in nats from the full model, over tokens that predict validation answers.
        saved: Net FLOPs saved on those texts, a share of the dense model's.
    """

    skipped: tuple[int, ...]
    divergence: float
    saved: float

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LayerSet:
        """Read back what `asdict` gave."""
        return cls(tuple(values["skipped"]), values["divergence"], values["saved"])


def finalists(
    backbone_model: PreTrainedModel,
    full: FullModel,
    count: int,
    nested: Collection[int],
    reporter: Reporter,
    label: str,
) -> list[LayerSet]:
    """The sets of so many layers that go on, nearest to the full model first. The one that extends a nested chain best
    is always among them (`next_nested`).

    Args:
        nested: The chain's set of one layer less.
    """
    layers = int(backbone_model.config.num_hidden_layers)
    if comb(layers, count) <= MOST_SUBSETS:
        tried = list(combinations(range(layers), count))
    else:
        tried = [tuple(sorted({*nested, layer})) for layer in range(layers) if layer not in nested]
    with reporter.task(f"{label}: sets of {count} layer(s) to leave out", total=len(tried)) as task:
        measured = []
        for skipped in tried:
            measured.append(_measure(backbone_model, full, skipped))
            task.advance()
    measured.sort(key=lambda one: one.divergence)
    best, extending = measured[:FINALISTS], next_nested(measured, nested)
    return best if extending in best else [*best, extending]


def next_nested(sets: Sequence[LayerSet], nested: Collection[int]) -> LayerSet:
    """The first that leaves out all that a nested set does."""
    return next(one for one in sets if set(nested) < set(one.skipped))


def _measure(backbone_model: PreTrainedModel, full: FullModel, skipped: tuple[int, ...]) -> LayerSet:
    model = static_model(backbone_model, skipped)
    found = full.divergence(model)
    saved = model.compute_report()["saved"]["net"]
    return LayerSet(skipped, found.answers, float(saved))
