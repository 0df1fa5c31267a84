"""`adaptive-bench show`: shows where the numbers of a run or of one training come from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
import yaml

from adaptive_bench.cli.options import DEFAULT_OUT, Out, find_run, run_names
from adaptive_bench.cli.terminal_text import fitting, paragraph, pasteable, terminal_width, wrapped
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.store.runs import (
    is_run,
    plugins_in,
    run_command,
    run_name,
)

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # characters of a curve
_SHOWN = 3  # most evaluations with lost points that are named
_SETTINGS = ("model", "methods", "tasks", "seeds", "levels", "match_on", "match_phase", "train_on", "data_dir")


def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CELL",
            autocompletion=run_names,
            help="Name or folder of a run, `last`, or folder of a record (as `status` lists them).",
        ),
    ],
    out: Out = DEFAULT_OUT,
) -> None:
    """Show configuration, command, environment, and how the training went.

    `adaptive-bench samples RUN` shows what the models were asked and wrote.
    """
    folder = find_run(run, out)
    if is_run(folder):
        typer.echo(run_text(folder))
    elif (folder / "record.json").is_file():
        typer.echo(_record_text(folder))
    else:
        raise UsageError(
            f"A run has a config.yaml and a record a record.json, but {str(folder)!r} has neither. "
            f"`adaptive-bench list runs` and `adaptive-bench status --all` show the folders."
        )


def run_text(folder: Path) -> str:
    """What is known of a run, in paragraphs."""
    from adaptive_bench.store.records import Record
    from adaptive_bench.store.results import read_run

    about = read_run(folder / "config.yaml")
    settings = {key: about[key] for key in _SETTINGS if about.get(key) is not None}
    problem = f", {about['problem']}" if "problem" in about else ""
    took = f" after {about['took_s']:.0f} s" if "took_s" in about else ""
    parts = [
        f"run {run_name(folder)}: {about.get('state', 'unfinished')}{problem}",
        f"finished {about.get('finished', 'never')}{took}",
        *(_repeating(folder, about) if (folder / "config.yaml").is_file() else ()),
        _yaml(settings | {key: about[key] for key in ("train", "evaluation") if key in about}),
    ]
    home = folder.parent.parent / "records"
    if records := [Record(home / name) for name in about.get("records", []) if (home / name).is_dir()]:
        environments = {
            ", ".join(f"{key} {value}" for key, value in (one.read("env") or {}).items()) for one in records
        }
        parts += [wrapped(f"environment: {text}", indent="  ") for text in sorted(environments)]
        rows = []
        for record in records:
            content, losses = record.read("config") or {}, _losses(record.folder)
            row = {"record": record.folder.name, "method": str(content.get("method", "?"))}
            row |= {"seed": str(content.get("seed", "?")), "state": record.state}
            text = (record.read("data") or {}).get("order_sha256", "")[:8]
            rows.append(row | ({"last loss": f"{losses[-1]:.4f}", "text": text} if losses else {}))
        parts.append(_filled(rows))
        parts.append(paragraph("text: digest of the training text in its order; if it is equal, so are both."))
    parts += [paragraph(f"Not as the run left it: {text}") for text in _lost(folder)]
    parts += [paragraph(f"Failed: {failure}") for failure in about.get("failures", [])]
    parts += [paragraph(f"Note: {warning}") for warning in about.get("warnings", [])]
    return "\n\n".join(parts)


def _repeating(folder: Path, about: Mapping[str, Any]) -> list[str]:
    """The command that repeats the run, not wrapped so that it can be copied, and plugins it needs that are missing."""
    plugins = plugins_in(folder)
    began_in = Path(about.get("directory", "."))
    if began_in.resolve() == Path.cwd():
        said = [f"repeat it with: {pasteable(run_command(folder, plugins))}"]
    else:  # paths in its config may be relative
        command = run_command(folder.resolve(), plugins, began_in)
        said = [f"repeat it with: cd {shlex.quote(str(began_in))} && {command}"]
    return [*said, *(f"The plugin {path} is not there any more." for path in plugins if not path.is_file())]


def _lost(folder: Path) -> list[str]:
    """Sentences about results that the run measured and that are no longer on disk."""
    from adaptive_bench.store import manifest

    try:
        listed = manifest.read(folder)
        lost = [] if listed is None else listed.lost()
    except EnvironmentProblem as error:
        return [message_of(error)]
    return lost if len(lost) <= _SHOWN else [*lost[:_SHOWN], f"{len(lost) - _SHOWN} more evaluations lack points."]


def _filled(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of the rows, without empty columns."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if any(row.get(key) for row in rows)]
    return fitting([{key: row.get(key, "") for key in keys} for row in rows])


def _record_text(folder: Path) -> str:
    from adaptive_bench.store.records import FILE, DialEvaluationRecord, Record

    record = Record(folder)
    reason = f", {record.reason}" if record.reason else ""
    parts = [f"record {folder}: {record.state}{reason}", _yaml(record.read("config") or {})]
    sweeps = sorted((folder / "eval").glob("*"))
    for place in (folder, *sweeps):
        if Record(place).is_damaged:
            parts.append(paragraph(f"{place / FILE} cannot be read; the command of its run makes it again."))
    for section in ("target", "cost", "env", "dial"):
        if (values := record.read(section)) is not None:
            parts.append(f"{section}:\n{_yaml(values)}")
    if losses := _losses(folder):
        said = f"loss, {losses[0]:.3f} at the first step, {losses[-1]:.3f} at step {len(losses)}"
        parts.append(f"{said}\n{curve(losses)}")
    rows = [
        {
            "sweep": place.name,
            "asked": f"{saving:.1%}",
            "saved tokens": f"{point.savings['tokens']:.1%}",
            "saved net": f"{point.savings['net']:.1%}",
            "documents": str(point.docs),
            "scores": ", ".join(f"{name.split(',')[0]} {value:.4f}" for name, value in point.scores.items()),
        }
        for place in (folder, *sweeps)
        for saving, point in DialEvaluationRecord(place).points().items()
    ]
    return "\n\n".join([*parts, fitting(rows)] if rows else parts)


def _losses(folder: Path) -> list[float]:
    """The loss of each logged step, without lines that are damaged or were cut off when the process was killed."""
    log, losses = folder / "train.jsonl", []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else ():
        try:
            losses.append(float(json.loads(line)["loss"]))
        except (ValueError, KeyError, TypeError):
            continue
    return losses


def curve(values: Sequence[float], width: int = _WIDTH) -> str:
    """Numbers as a line of bars; if there are more than fit, neighbours are averaged."""
    if not values:
        return ""
    size = min(width, len(values))
    bins = [values[len(values) * place // size : len(values) * (place + 1) // size] for place in range(size)]
    means = [fmean(part) for part in bins]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, width=terminal_width(), default_flow_style=None).rstrip()
