"""What early exits could save on the texts of a task: exits, replays and the references beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.headroom.exits import derangement
from adaptive_bench.headroom.replay import DenseText, replay
from adaptive_bench.headroom.similarity import ALPHAS, suitability
from adaptive_bench.headroom.speculation import fewest_passes_per_token
from adaptive_bench.headroom.subsets import MOST_LAYERS, smallest_subsets
from adaptive_bench.headroom.texts import TaskText
from adaptive_bench.method import KVPolicy
from adaptive_bench.progress import Reporter

SUBSET_TOKENS = 64


def exit_report(
    backbone_model: PreTrainedModel,
    texts: Sequence[TaskText],
    *,
    kv: KVPolicy,
    seed: int,
    rows: int,
    reporter: Reporter,
    label: str,
) -> dict[str, Any]:
    """The exact reading of the exit oracle on the dense text, and what surrounds it.

    Returns:
        `depth`: mean exits, the share of layer passes of answer tokens that stable exits need not make (with exact K,V,
        which take all layers: a bound on time), and passes a token of ideal self-speculation.
        `deferred`: stable exits replayed with exact K,V at the one layer where they leave out most.
        `replayed`, `shuffled`: stable exits on the K,V that the policy leaves, and the same given to other tokens.
        `suitability`: EAS by alpha. `subsets`: the exact subset oracle; `None` for more than 10 layers.
    """
    dense = DenseText.of(backbone_model, texts, rows)
    layers, stable, first = len(dense.predicted), dense.stable, dense.first
    waits_before = max(range(1, layers + 1), key=lambda layer: int((stable <= layer).sum()) * (layers - layer))
    others = stable[derangement(len(stable), seed)] if len(stable) > 1 else stable
    return {
        "layers": layers,
        "tokens": len(stable),
        "depth": {
            "first": _mean(first),
            "stable": _mean(stable),
            "lucky": _mean(dense.lucky(seed)),
            "saved_passes": 1.0 - _mean(stable) / layers,
            "speculation_passes": _speculation(dense, first, layers),
        },
        "deferred": {
            "waits_before": waits_before,
            **asdict(replay(backbone_model, dense, stable, "defer", min(waits_before, layers - 1))),
        },
        "kv": kv,
        "replayed": asdict(replay(backbone_model, dense, stable, kv)),
        "shuffled": asdict(replay(backbone_model, dense, others, kv)),
        "similarity": list(dense.similarity),
        "suitability": {str(alpha): suitability(dense.similarity, alpha) for alpha in ALPHAS},
        "subsets": _subsets(backbone_model, texts, layers, seed, reporter, label),
    }


def _speculation(dense: DenseText, first: Tensor, layers: int) -> float:
    """Passes a token, text by text: a round does not reach into the next one."""
    counts = torch.bincount(dense.texts)
    parts = first.split([int(count) for count in counts if count])
    passes = sum(fewest_passes_per_token(part.tolist(), layers) * len(part) for part in parts)
    return passes / len(first)


def _subsets(
    backbone_model: PreTrainedModel, texts: Sequence[TaskText], layers: int, seed: int, reporter: Reporter, label: str
) -> dict[str, Any] | None:
    if layers > MOST_LAYERS:
        return None
    kept = []
    with reporter.task(f"{label}: all subsets of layers", total=SUBSET_TOKENS) as task:
        for found in smallest_subsets(backbone_model, texts, SUBSET_TOKENS, seed):
            kept.append(found.kept)
            task.advance()
    return {"tokens": len(kept), "kept": sum(kept) / len(kept), "saved_passes": 1.0 - sum(kept) / len(kept) / layers}


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
