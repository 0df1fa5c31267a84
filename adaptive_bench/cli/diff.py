"""`adaptive-bench diff`: what two runs do differently, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from adaptive_bench.cli.named_run import Run, manifest_of
from adaptive_bench.cli.tables import fitting
from adaptive_bench.store.manifest import target_text

_IGNORED = {"out", "device", "track", "preset", "finished", "took_s", "records", "warnings", "notes", "failures"}
_IGNORED |= {"cell_timeout", "stall_warning"}
_IGNORED |= {"state", "began", "directory", "command"}
_SHOWN = 8  # documents of one row


def diff(
    first: Run,
    second: Run,
) -> None:
    """Compare two runs: their configurations, and where both measured a method at the same asked saving, its scores.

    The difference is second less first, with a 95 % interval over the documents (and seeds) that both have.
    """
    from adaptive_bench.store.results import read_run

    abouts = [read_run(folder / "config.yaml") for folder in (first, second)]
    changed = list(_changes(*abouts))
    typer.echo(fitting(changed) if changed else "The configurations are equal.")
    rows = list(compared(first, second))
    typer.echo("\n" + (fitting(rows) if rows else "Nothing was measured in both."))


def compared(first: Path, second: Path) -> Iterator[dict[str, str]]:
    """One row for each method, task and asked saving that both runs have measured."""
    from adaptive_bench.errors import UsageError
    from adaptive_bench.metric import metric_of
    from adaptive_bench.tables.comparison import paired_difference
    from adaptive_bench.tables.document_scores import DocumentScores
    from adaptive_bench.tables.document_values import is_pooled
    from adaptive_bench.tables.intervals import UNBOUNDED

    tables = [_scores(folder) for folder in (first, second)]
    for key in tables[0]:
        if key not in tables[1]:
            continue
        method, task, metric, saving = key
        try:
            one, other = DocumentScores.of(tables[0][key]).shared(DocumentScores.of(tables[1][key]))
        except UsageError:  # they have no seed or no document in common
            continue
        pooled = is_pooled(metric)
        bounds = UNBOUNDED if pooled else (metric_of(metric).low, metric_of(metric).high)
        found = paired_difference(other.values, one.values, bounds)
        means = zip(one.documents, one.values.mean(axis=0), other.values.mean(axis=0), strict=True)
        moved = [str(document) for document, before, after in means if before != after]
        interval = "" if found.low is None or found.high is None else f"[{found.low:+.3f}, {found.high:+.3f}]"
        yield {
            "method": method,
            "task": task,
            "asked": f"{saving:.1%}",
            "first": f"{one.values.mean():.4f}",
            "second": f"{other.values.mean():.4f}",
            "difference": f"{found.difference:+.4f} {interval}".rstrip(),
            "documents": f"{found.documents}",
            "changed": _listed(moved, pooled),
        }


def _listed(documents: Sequence[str], pooled: bool) -> str:
    if not documents:
        return "none"
    if pooled:  # one document moves what all of them add to the metric
        return "some"
    return f"{len(documents)}: {' '.join(documents[:_SHOWN])}{' ...' if len(documents) > _SHOWN else ''}"


_Key = tuple[str, str, str, float]


def _scores(folder: Path) -> dict[_Key, dict[int, dict[int, float]]]:
    """By method, task, metric and asked saving, the score of each document of each seed."""
    from adaptive_bench.tables.document_values import document_values

    found: dict[_Key, dict[int, dict[int, float]]] = {}
    known = manifest_of(folder)
    for one in known.evaluations:
        if one.split != "test":
            continue
        record, training = known.record_of(one), known.training_of(one)
        for saving in record.savings():
            scores = document_values(one.metric, record.samples(saving))
            variant = f", {one.variant}" if one.variant else ""
            method = f"{one.method}{target_text(training.target, training.only_target)}{variant}"
            key = (method, one.task, one.metric, saving)
            found.setdefault(key, {})[training.seed] = scores
    return found


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    flat = [dict(_flat(about)) for about in (first, second)]
    for key in dict.fromkeys([*flat[0], *flat[1]]):
        if flat[0].get(key) != flat[1].get(key):
            yield {"setting": key, "first": _text(flat[0].get(key)), "second": _text(flat[1].get(key))}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if not before and key in _IGNORED:
            continue
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
