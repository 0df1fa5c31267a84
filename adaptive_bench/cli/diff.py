"""`adaptive-bench diff`: what two runs do differently, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Run, manifest_of
from adaptive_bench.cli.tables import fitting
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store.runs import run_name

if TYPE_CHECKING:
    from adaptive_bench.store.manifest import Manifest

_IGNORED = {"out", "device", "track", "preset", "finished", "took_s", "records", "warnings", "notes", "failures"}
_IGNORED |= {"cell_timeout", "stall_warning"}
_IGNORED |= {"state", "began", "directory", "command", "run_key", "schema"}
_SHOWN = 8  # documents of one row


def diff(
    first: Run,
    second: Run,
) -> None:
    """Compare two runs: their configurations, and where both measured a method at the same saving, its scores.

    The difference is second less first, with a 95 % interval over the documents (and seeds) that both have.
    """
    from adaptive_bench.store.results import read_run

    manifests = {folder: manifest_of(folder) for folder in (first, second)}  # refused before anything is printed
    abouts = [read_run(folder / "config.yaml") for folder in (first, second)]
    for about in abouts:
        if problem := about.get("problem"):
            raise EnvironmentProblem(str(problem))
    changed = list(_changes(*abouts))
    typer.echo(fitting(changed) if changed else "The configurations are equal.")
    tables = _scores(manifests[first]), _scores(manifests[second])
    rows = list(_rows(*tables))
    alone = list(_alone(*tables))
    moved = sum(row["changed"] != "none" for row in rows)
    if rows and not moved and not changed:
        typer.echo(f"Equal: every document has the same score at {len(rows)} point(s) that both measured.")
    else:
        typer.echo("\n" + (fitting(rows) if rows else "Nothing was measured in both."))
    if rows and (moved or changed):
        typer.echo(f"\nScores of documents differ at {moved} of {len(rows)} point(s) that both measured.")
    for text in alone:
        typer.echo("\n" + paragraph(text))
    for folder, known in manifests.items():
        for text in known.unfinished([one for one in known.evaluations if one.split == "test"]):
            typer.echo("\n" + paragraph(f"Not finished in {run_name(folder)}: {text}"))


def compared(first: Path, second: Path) -> Iterator[dict[str, str]]:
    """One row for each method, task and asked saving that both runs have measured."""
    return _rows(_scores(manifest_of(first)), _scores(manifest_of(second)))


def _rows(first: _Scores, second: _Scores) -> Iterator[dict[str, str]]:
    from adaptive_bench.errors import UsageError
    from adaptive_bench.metric import metric_of
    from adaptive_bench.tables.comparison import paired_difference
    from adaptive_bench.tables.document_scores import DocumentScores
    from adaptive_bench.tables.document_values import is_pooled
    from adaptive_bench.tables.intervals import UNBOUNDED

    for key in first:
        if key not in second:
            continue
        method, task, metric, saving = key
        try:
            one, other = DocumentScores.of(first[key]).shared(DocumentScores.of(second[key]))
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
_Scores = dict[_Key, dict[int, dict[int, float]]]


def _alone(first: _Scores, second: _Scores) -> Iterator[str]:
    """What the table leaves out: what one of two runs alone has measured, sentences."""
    for which, own, other in (("first", first, second), ("second", second, first)):
        if alone := [key for key in own if key not in other]:
            method, task, _, saving = alone[0]
            yield f"Only the {which} measured {len(alone)} point(s): {method} on {task} at {saving:.1%}, ..."
    for key in first:
        if key in second and (seeds := first[key].keys() ^ second[key].keys()):
            which = ", ".join(map(str, sorted(seeds)))
            yield f"Only seeds that both have are compared; one of the two alone has measured {key[0]} with {which}."
            return


def _scores(known: Manifest) -> _Scores:
    """By method, task, metric and asked saving, the score of each document of each seed."""
    from adaptive_bench.store.manifest import target_text
    from adaptive_bench.tables.document_values import document_values

    found: _Scores = {}
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
