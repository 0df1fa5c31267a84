"""Which layers to leave out for everybody: the floor that every adaptive method has to beat.

Of each number of layers left out the sets whose predictions move least on validation text go on (exactly, among all
subsets, where these are few; else by greedy deletion, one layer more at a time). Validation documents decide among
them. Layers are left out of the model as it is, without training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

from transformers import PreTrainedModel

from adaptive_bench.headroom.divergence import FullModel
from adaptive_bench.headroom.prescribed import static_model
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


def layer_sets(
    backbone_model: PreTrainedModel, full: FullModel, largest_saving: float, reporter: Reporter, label: str
) -> Iterator[list[LayerSet]]:
    """For 1, 2, ... layers left out the finalists, nearest to the full model first, until a saving is reached or one
    layer is left. The set that extends the last nested one best is always among them.
    """
    layers = int(backbone_model.config.num_hidden_layers)
    nested: tuple[int, ...] = ()
    for count in range(1, layers):
        if comb(layers, count) <= MOST_SUBSETS:
            tried = list(combinations(range(layers), count))
        else:
            tried = [tuple(sorted({*nested, layer})) for layer in range(layers) if layer not in nested]
        with reporter.task(f"{label}: {count} layers left out", total=len(tried)) as task:
            measured = []
            for skipped in tried:
                measured.append(_measure(backbone_model, full, skipped))
                task.advance()
        measured.sort(key=lambda one: one.divergence)
        extending = next(one for one in measured if set(nested) < set(one.skipped))
        nested = extending.skipped
        finalists = measured[:FINALISTS]
        yield finalists if extending in finalists else [*finalists, extending]
        if measured[0].saved >= largest_saving:
            return


def _measure(backbone_model: PreTrainedModel, full: FullModel, skipped: tuple[int, ...]) -> LayerSet:
    model = static_model(backbone_model, skipped)
    found = full.divergence(model)
    saved = model.compute_report()["saved"]["net"]
    return LayerSet(skipped, found.answers, float(saved))
