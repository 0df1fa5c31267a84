"""Collects a few documents of every task with what each method wrote, at each measured saving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.measured import MeasuredPoint, Measurements
from adaptive_bench.store.records import DialEvaluationRecord

from .entry import Entry
from .plain import block, plain
from .provenance import manifest_in

DOCUMENTS = 6
_LONGEST = 240  # characters of an answer
_Points = Iterable[MeasuredPoint]


def samples_of(folder: Path, entry: Entry | None = None) -> dict[str, Any]:
    """For each task, the right answers by document, and by method its points `[tokens, core, net, answers, sites]`.

    The first three are savings in percent. An answer is a text and whether it is right (1, 0, another score, or `None`
    if unknown). Sites hold, for each layer, the shares of tokens that executed its attention and its MLP. One seed of
    each method is shown. The folder is a run's, or that of the `entry`.
    """
    found: dict[str, Any] = {}
    for task, method, measured in _of_run(folder) if entry is None else _of_entry(entry.measured):
        place = found.setdefault(plain(task, 200), {"targets": {}, "methods": {}})
        if (name := plain(method, 200)) in place["methods"]:
            continue  # another seed of it
        points = []
        for point in measured:
            texts = point.texts[:DOCUMENTS]
            place["targets"] |= {str(one.document): block(one.target, _LONGEST) for one in texts}
            answers = {str(one.document): [block(one.written, _LONGEST), _rounded(one.correct)] for one in texts}
            saved = [round(100 * point.savings.get(axis, 0.0), 1) for axis in ("tokens", "core", "net")]
            sites = [
                [round(share, 4) for share in both]
                for both in zip(point.attention_executed, point.mlp_executed, strict=True)
            ]
            points.append([*saved, answers, sites])
        place["methods"][name] = sorted(points, key=itemgetter(2))
    return found


def _of_run(folder: Path) -> Iterator[tuple[str, str, _Points]]:
    listed = manifest_in(folder)
    for one in listed.evaluations:
        record = DialEvaluationRecord(listed.out / "records" / one.record, one.asked or None)
        if one.split == "test" and not one.variant and record.folder.is_dir():  # neither targets nor controls
            yield one.task, one.method, _points(record)


def _points(record: DialEvaluationRecord) -> Iterator[MeasuredPoint]:
    with suppress(EnvironmentProblem):  # damaged points are left out: no score depends on them
        for asked, point in record.points().items():
            yield MeasuredPoint.of(asked, point, (), record.samples(asked, DOCUMENTS), DOCUMENTS)


def _of_entry(measured: Measurements) -> Iterator[tuple[str, str, _Points]]:
    for sweep in measured.sweeps:
        if sweep.split == "test" and not sweep.variant:
            yield sweep.task, sweep.method, sweep.points


def _rounded(score: float | None) -> float | None:
    return None if score is None else float(f"{score:.3g}")
