"""What was looked at as plain values, for a page and for JSON: masks as bits, and every statistic at every saving."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from adaptive_bench.inspection import statistics
from adaptive_bench.inspection.study import Inspection, Point, Reading
from adaptive_bench.inspection.token_kinds import KINDS, kinds_of
from adaptive_bench.model.text_decisions import visible

SCHEMA = 1
FIRST_SHOWN = 0.2  # the saving a page begins with


def record_of(inspection: Inspection) -> dict[str, Any]:
    """Everything a page shows."""
    texts = inspection.texts
    kinds = [kinds_of(one.pieces, one.token_ids, inspection.ends) for one in texts]
    groups = [kind for some in kinds for kind in some]
    first = texts[0]
    savings = sorted({point.saving for reading in inspection.readings for point in reading.points})
    return {
        "schema": SCHEMA,
        "name": inspection.name,
        "about": inspection.about,
        "texts": len(texts),
        "tokens": sum(len(one.pieces) for one in texts),
        "layers": first.keep.shape[1],
        "prompt_tokens": first.prompt_tokens,
        "pieces": list(first.pieces),
        "names": [visible(piece) for piece in first.pieces],
        "kinds": kinds[0],
        "savings": savings,
        "first_saving": min(savings, key=lambda saving: abs(saving - FIRST_SHOWN)),
        "methods": [_method(one, groups) for one in inspection.readings],
        "agreement": {f"{saving:g}": _agreements(inspection.readings, saving) for saving in savings},
        "notes": inspection.notes,
    }


def _method(reading: Reading, groups: Sequence[str]) -> dict[str, Any]:
    everything = reading.points[0]
    scores = statistics.scores_of(everything.texts)
    return {
        "spec": reading.spec,
        "dial_name": reading.dial_name,
        "unit": reading.unit,
        "semantics": reading.semantics,
        "points": {f"{point.saving:g}": _point(point, groups) for point in reading.points},
        "oracle": bits(reading.oracle()[: len(everything.texts[0].pieces)]),
        "exit": float(np.concatenate(reading.exits).mean()),
        "scores": None if scores is None else _scores(everything, scores, groups),
    }


def _point(point: Point, groups: Sequence[str]) -> dict[str, Any]:
    keep = statistics.masks_of(point.texts)
    part = [
        "prompt" if place < one.prompt_tokens else "answer" for one in point.texts for place in range(len(one.keep))
    ]
    return {
        "dial": point.texts[0].dial,
        "saved": point.saved,
        "bits": bits(point.texts[0].keep),
        "by_part": _rounded(statistics.skipped_by(keep, part)),
        "by_kind": _rounded(_in_order(statistics.skipped_by(keep, groups))),
        "by_layer": [[round(share, 4) for share in pair] for pair in statistics.skipped_by_layer(keep)],
    }


def _scores(point: Point, scores: np.ndarray, groups: Sequence[str]) -> dict[str, Any]:
    """Densities of each site, the first text's scores as bytes within the range of each site."""
    first = scores[: len(point.texts[0].keep)]
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(scores).all(axis=0)
        low = np.where(known, np.nanmin(np.where(known[None], scores, 0.0), axis=0), 0.0)
        high = np.where(known, np.nanmax(np.where(known[None], scores, 0.0), axis=0), 0.0)
        scaled = np.nan_to_num((first - low) / np.maximum(high - low, 1e-12), nan=-1.0)
    levels = np.where(scaled < 0, 255, np.round(scaled * 254)).astype(np.uint8)
    sites = [
        {
            "range": [float(low[layer, branch]), float(high[layer, branch])] if known[layer, branch] else None,
            "density": _density(scores[:, layer, branch]),
            "spread": statistics.spread_of(scores[:, layer, branch]),
        }
        for layer in range(scores.shape[1])
        for branch in range(2)
    ]
    return {
        "bytes": base64.b64encode(levels.tobytes()).decode(),
        "sites": sites,
        "by_kind": _in_order(statistics.scores_by(scores, groups)),
    }


def _density(values: np.ndarray) -> list[float] | None:
    found = statistics.density(values)
    return None if found is None else [round(height, 3) for height in found[2]]


def _agreements(readings: Sequence[Reading], saving: float) -> list[dict[str, Any]]:
    """Of each pair of methods at a saving, and of each method with its own oracle."""
    masks = {
        reading.spec: (reading, statistics.masks_of(point.texts))
        for reading in readings
        for point in reading.points
        if point.saving == saving
    }
    pairs = [(one, other, masks[one][1], masks[other][1]) for one, other in combinations(masks, 2)]
    pairs += [(name, "", keep, reading.oracle()) for name, (reading, keep) in masks.items()]
    found = []
    for one, other, first, second in pairs:
        alike, kappa = statistics.agreement(first, second)
        found.append({"one": one, "other": other or None, "alike": alike, "kappa": kappa})
    return found


def _in_order(found: dict[str, Any]) -> dict[str, Any]:
    """Kinds of tokens in their order."""
    return {kind: found[kind] for kind in KINDS if kind in found}


def _rounded(found: dict[str, tuple[int, float, float]]) -> dict[str, list[float]]:
    return {name: [count, round(attention, 4), round(mlp, 4)] for name, (count, attention, mlp) in found.items()}


def bits(keep: np.ndarray) -> str:
    """A mask [S, L, 2] in base 64, eight decisions a byte, the first in the highest bit."""
    return base64.b64encode(np.packbits(keep.ravel()).tobytes()).decode()
