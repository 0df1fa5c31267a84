"""Exports results for other programs: rows as CSV, JSON and Parquet, and measured points in lm-eval's own layout.

A results file of lm-eval is about one model: here one method, seed, target and requested saving, with every task that
was measured there. Nothing is interpolated: savings are those asked for, and the measured savings stand beside the
scores.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.store import manifest
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.results import read_run

Rows = Sequence[Mapping[str, Any]]


def columns(rows: Rows) -> dict[str, list[Any]]:
    """Return the values of all rows by key; `None` if a row lacks the key."""
    names: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= names.keys():  # nearly all of thousands of rows have the keys of the first
            names |= dict.fromkeys(row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_csv(rows: Rows) -> str:
    """Return CSV: a header and a line for each row; `None` becomes an empty cell."""
    found = columns(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    writer.writerows(zip(*found.values(), strict=True))
    return text.getvalue()


def as_json(rows: Rows) -> str:
    """Return a JSON list of objects that all have the same keys."""
    found = columns(rows)
    lines = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return json.dumps(lines, ensure_ascii=False) + "\n"


def as_parquet(rows: Rows) -> bytes:
    """Return a Parquet file. It is made without pandas, whose import takes longer than building a board."""
    import pyarrow
    from pyarrow import parquet

    written = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns(rows)), written)
    return bytes(written.getvalue())


def lm_eval_files(run: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give the relative path and the contents of each results file of a run; as in lm-eval, each model has a folder.

    Args:
        run: The folder of a finished run.

    Raises:
        UsageError: The folder is not a run.
        EnvironmentProblem: The run has no manifest, or a record is damaged.
    """
    listed = manifest.of_run(run)
    about = read_run(run / "config.yaml")
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for entry in listed.evaluations:
        if entry.split != "test" or entry.variant:  # validation documents and shuffled controls are no results
            continue
        record, training = listed.record_of(entry), listed.training_of(entry)
        for saving, point in record.points().items():
            name = f"{entry.method}{manifest.target_text(training.target, training.only_target)}, seed {training.seed}"
            contents = found.setdefault((name, saving), _empty(name, entry.method, training.seed, saving, about))
            _add(contents, point, record.samples(saving))
    for (name, saving), contents in found.items():
        folder = re.sub(r"[^\w.@=+-]+", "_", f"{name} saving {saving:g}")
        yield Path(folder) / f"results_{str(about.get('finished')).replace(':', '-')}.json", contents


def _empty(name: str, method: str, seed: int, saving: float, about: dict[str, Any]) -> dict[str, Any]:
    arguments = {"base_model": about.get("model"), "spec": method, "seed": seed, "saving": saving}
    return {
        "results": {},
        "group_subtasks": {},
        "configs": {},
        "versions": {},
        "n-shot": {},
        "n-samples": {},
        "higher_is_better": {},
        "config": {"model": "adaptive", "model_args": arguments},
        "model_source": "adaptive",
        "model_name": f"{name}, saving {saving:g}",
        "date": about.get("finished"),
        "adaptive_bench": {},
    }


def _add(contents: dict[str, Any], point: Evaluation, samples: list[Sample]) -> None:
    """Add the measured point of one task to the contents of a results file."""
    task, data = point.task, point.data or {}
    scores: dict[str, Any] = {"alias": task}
    for key, value in point.scores.items():
        metric, _, of = key.partition(",")
        scores[key] = value
        scores[f"{metric}_stderr,{of}"] = _standard_error(value, [sample.scores.get(key) for sample in samples])
    contents["results"][task] = scores
    contents["configs"][task] = {"task": task, "num_fewshot": point.num_fewshot}
    contents["versions"][task] = data.get("task_version")
    contents["n-shot"][task] = point.num_fewshot
    contents["n-samples"][task] = {"original": point.docs, "effective": point.docs}
    contents["group_subtasks"][task] = []
    contents["adaptive_bench"][task] = {"dial": point.dial, "saved": dict(point.savings), "time_s": point.time_s}


def _standard_error(score: float, values: list[float | None]) -> float | str:
    """Return the standard error of a mean over documents as lm-eval computes it; `N/A` if the score is no such mean."""
    known = [float(value) for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values) or not math.isclose(statistics.fmean(known), score, abs_tol=1e-9):
        return "N/A"
    return statistics.stdev(known) / math.sqrt(len(known))
