"""The scores of single documents at every measured point of a run, small enough to be passed on with its table.

With them methods are compared pair by pair, and every score of the table can be made again without the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.schema import SCHEMA
from adaptive_bench.tables.document_scores import answers_by_seed
from adaptive_bench.tables.points import point_of, saved_time


def as_file(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Plain values for `answers.json`, from those of `entry`."""
    return {"schema": SCHEMA, "sweeps": list(entries)}


def entry(
    sweep: DialEvaluation,
    points: Mapping[float, Evaluation],
    priced: Sequence[Evaluation],
    samples: Sequence[Sequence[Sample]],
) -> dict[str, Any]:
    """Plain values of one finished sweep of test documents:

    method, semantics, task, seed, target: As in a row of the table.
    documents, documents_sha256: Their indices, and the digest of what they are (`None` in older records).
    plain_ms: By setting milliseconds that the plain model took for each new token (`TimeCurve.plain_ms`).
    points: Measured dial values, each with `asked` (share of tokens it was asked to save), `dial`, `saved` (savings by
        name, as in `Point`), `times` (saved time by setting), and `scores` by metric: one number for each document, a
        text of `0` and `1` where there are no others, in a pooled metric what `document_values` says. A metric that
        samples do not make up is not there.

    Args:
        points: By the saving each was asked for.
        priced: The same with their projection.
        samples: The documents of each.
    """
    done, seed = list(points.values()), sweep.training.seed
    tables = {
        metric: found[seed]
        for metric in find_task(sweep.task).metrics
        if metric in done[0].scores and (found := answers_by_seed(metric, {seed: done}, {seed: samples}))
    }
    return {
        "method": str(replace(sweep.spec, semantics="bench")),
        "semantics": sweep.spec.semantics,
        "task": sweep.task,
        "seed": seed,
        "target": None if sweep.training.has_single_target else sweep.training.target,
        "documents": sorted(sample.doc for sample in samples[0]),
        "documents_sha256": (done[0].data or {}).get("documents_sha256"),
        "plain_ms": {name: ms for name, curve in sweep.curves.items() if (ms := curve.plain_ms) is not None},
        "points": [
            {"asked": asked, **_point(one, sweep, {metric: table[place].tolist() for metric, table in tables.items()})}
            for place, (asked, one) in enumerate(zip(points, priced, strict=True))
        ],
    }


def _point(one: Evaluation, sweep: DialEvaluation, scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    times = {name: saved_time(one, curve) for name, curve in sweep.curves.items()}
    saved = point_of(one, sweep.metric).saved
    return {
        "dial": one.dial,
        "saved": {name: value for name, value in saved.items() if value is not None},
        "times": {name: value for name, value in times.items() if value is not None},
        "scores": {metric: _compact(values) for metric, values in scores.items()},
    }


def _compact(values: Sequence[float]) -> str | list[float]:
    binary = all(value in (0.0, 1.0) for value in values)
    return "".join(str(int(value)) for value in values) if binary else list(values)
