"""What was looked at as plain values, for a page and for JSON: masks as bits, and every statistic at every saving."""

from __future__ import annotations

import base64
from collections.abc import Sequence
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
        "scores": None if scores is None else _scores(scores, len(everything.texts[0].pieces)),
    }


def _point(point: Point, groups: Sequence[str]) -> dict[str, Any]:
    keep = statistics.masks_of(point.texts)
    by_kind = statistics.skipped_by(keep, groups)
    part = [
        "prompt" if place < one.prompt_tokens else "answer" for one in point.texts for place in range(len(one.keep))
    ]
    return {
        "dial": point.texts[0].dial,
        "saved": point.saved,
        "bits": bits(point.texts[0].keep),
        "by_part": _rounded(statistics.skipped_by(keep, part)),
        "by_kind": _rounded({kind: by_kind[kind] for kind in KINDS if kind in by_kind}),
        "by_layer": [[round(share, 4) for share in pair] for pair in statistics.skipped_by_layer(keep)],
    }


def _scores(scores: np.ndarray, tokens: int) -> dict[str, Any]:
    """The first text's scores as bytes within the range of each site: 0 to 254, 255 where there is none."""
    known = ~np.isnan(scores)
    low = np.where(known, scores, np.inf).min(axis=0)
    high = np.where(known, scores, -np.inf).max(axis=0)
    with np.errstate(invalid="ignore"):
        scaled = np.nan_to_num((scores[:tokens] - low) / np.maximum(high - low, 1e-12), nan=-1.0)
    levels = np.where(scaled < 0, 255, np.round(scaled * 254)).astype(np.uint8)
    ranges = [
        [float(ends[0]), float(ends[1])] if some else None
        for ends, some in zip(np.stack([low, high], axis=-1).reshape(-1, 2), known.any(axis=0).ravel(), strict=True)
    ]
    return {"bytes": base64.b64encode(levels.tobytes()).decode(), "ranges": ranges}


def _rounded(found: dict[str, tuple[int, float, float]]) -> dict[str, list[float]]:
    return {name: [count, round(attention, 4), round(mlp, 4)] for name, (count, attention, mlp) in found.items()}


def bits(keep: np.ndarray) -> str:
    """A mask [S, L, 2] in base 64, eight decisions a byte, the first in the highest bit."""
    return base64.b64encode(np.packbits(keep.ravel()).tobytes()).decode()
