"""Collects a few documents of every task with what each method wrote, at each measured saving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.entry_files import Measurements
from adaptive_bench.store.records import DialEvaluationRecord

from .entry import Entry
from .plain import block, plain
from .provenance import records_of, sweeps_of

DOCUMENTS = 6
_LONGEST = 240  # characters of an answer


def samples_of(folder: Path, entry: Entry | None = None) -> dict[str, Any]:
    """For each task, the right answers by document, and by method its points `[tokens, core, net, answers, sites]`.

    The first three are savings in percent. An answer is a text and whether it is right (1, 0, another score, or `None`
    if unknown). Sites hold, for each layer, the shares of tokens that executed its attention and its MLP. One seed of
    each method is shown.

    Args:
        folder: Folder of a run or of an entry.
        entry: The entry, if the folder is one.
    """
    return collected(records_of(folder)) if entry is None else of_entry(entry.measured)


def collected(records: Iterable[Path]) -> dict[str, Any]:
    """As `samples_of`, from the records of one run."""
    found: dict[str, Any] = {}
    for record in records:
        for sweep, config in sweeps_of(record):
            task, method = config.get("task"), config.get("method")
            if not isinstance(task, str) or not isinstance(method, str) or config.get("split", "test") != "test":
                continue
            if config.get("variant"):  # answers of the method's control, not of the method
                continue
            task, method = plain(task, 200), plain(method, 200)
            place = found.setdefault(task, {"targets": {}, "methods": {}})
            if method not in place["methods"]:
                points = _points(DialEvaluationRecord(sweep), place["targets"])
                place["methods"][method] = sorted(points, key=itemgetter(2))
    return found


def of_entry(measured: Measurements) -> dict[str, Any]:
    """As `collected`, from an entry."""
    found: dict[str, Any] = {}
    for sweep in measured.sweeps:
        task, method = plain(sweep.task, 200), plain(sweep.method, 200)
        place = found.setdefault(task, {"targets": {}, "methods": {}})
        if sweep.split != "test" or sweep.variant or method in place["methods"]:
            continue
        points = []
        for point, written in zip(sweep.points, sweep.texts, strict=True):
            texts = written[:DOCUMENTS]
            saved = [round(100 * point.savings.get(axis, 0.0), 1) for axis in ("tokens", "core", "net")]
            answers = {str(one.document): [block(one.written, _LONGEST), _rounded(one.correct)] for one in texts}
            sites = [[round(share, 4) for share in both] for both in zip(point.attention, point.mlp, strict=True)]
            place["targets"] |= {str(one.document): block(one.target, _LONGEST) for one in texts}
            points.append([*saved, answers, sites])
        place["methods"][method] = sorted(points, key=itemgetter(2))
    return found


def _points(record: DialEvaluationRecord, targets: dict[str, str]) -> Iterator[list[Any]]:
    """The points of a sweep; adds right answers to `targets`. Damaged points are left out: no score depends on them."""
    with suppress(EnvironmentProblem):
        for saving, point in record.points().items():
            some = record.samples(saving, DOCUMENTS)
            answers = {str(one.doc): [block(one.output, _LONGEST), _rounded(one.correct)] for one in some}
            targets |= {str(one.doc): block(one.target, _LONGEST) for one in some}
            saved = [round(100 * point.savings[axis], 1) for axis in ("tokens", "core", "net")]
            yield [*saved, answers, _sites(point.report.get("sites", ()))]


def _sites(values: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """For each layer, the shares of tokens that executed its attention and its MLP."""
    found: dict[int, list[float]] = {}
    for one in values:
        layer, branch = int(one["layer"]), ("attention", "mlp").index(one["branch"])
        found.setdefault(layer, [1.0, 1.0])[branch] = round(one["executed"], 4)
    return [found[layer] for layer in sorted(found)]


def _rounded(score: float | None) -> float | None:
    return None if score is None else float(f"{score:.3g}")
