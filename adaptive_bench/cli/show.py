"""`adaptive-bench show`: where the numbers of a run or of one training come from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import named, run_names
from adaptive_bench.cli.program import pasteable
from adaptive_bench.cli.tables import fitting, terminal_width, wrapped
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.store.runs import (
    check_run,
    is_run,
    out_option,
    plugins_in,
    read_json,
    retry_command,
    run_command,
    run_name,
)

if TYPE_CHECKING:
    from adaptive_bench.tables.dials import DialLine

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # characters of a curve
_SHOWN = 3  # evaluations that lack something
_DIAL_SAVINGS = {"tokens": "tokens", "net": "net", "prefill": "prefill_net", "decode": "decode_net"}
_SETTINGS = ("model", "methods", "tasks", "seeds", "levels", "match_on", "match_phase", "train_on", "data_dir")


def show(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|CELL",
            parser=named,
            autocompletion=run_names,
            help="Name or folder of a run, `last`, or folder of a record (as `status` lists them).",
        ),
    ],
    dials: Annotated[
        bool, typer.Option("--dials", help="Of a run: which dial value gave which saving, by method, task and phase.")
    ] = False,
) -> None:
    """Show configuration, command, environment, and how the training went.

    What the models were asked and wrote: `adaptive-bench samples RUN`.
    """
    if dials:
        typer.echo(_dials(folder))
    elif is_run(folder):
        typer.echo(_run(folder))
    elif (folder / "record.json").is_file():
        typer.echo(_cell(folder))
    else:
        where = out_option(folder)
        raise UsageError(
            f"A run has a config.yaml and a record a record.json, but {str(folder)!r} has neither. "
            f"`adaptive-bench list runs{where}` and `adaptive-bench status --all{where}` show the folders."
        )


def curve(values: Sequence[float], width: int = _WIDTH) -> str:
    """Numbers as a line of bars; neighbours are averaged where there are more than fit."""
    if not values:
        return ""
    size = min(width, len(values))
    bins = [values[len(values) * place // size : len(values) * (place + 1) // size] for place in range(size)]
    means = [fmean(part) for part in bins]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def _run(folder: Path) -> str:
    from adaptive_bench.store.results import read_run

    about = read_run(folder / "config.yaml")
    settings = {key: about[key] for key in _SETTINGS if about.get(key) is not None}
    recipe = {key: about[key] for key in ("train", "evaluation") if key in about}
    parts = [
        f"run {run_name(folder)}: {about.get('state', 'unfinished')}"
        + (f", {about['problem']}" if "problem" in about else ""),
        f"finished {about.get('finished', 'never')}" + (f" after {about['took_s']:.0f} s" if "took_s" in about else ""),
        *(_repeating(folder, about) if (folder / "config.yaml").is_file() else ()),
        _yaml(settings | recipe),
    ]
    records = _records(folder, about)
    if records:
        environments = {", ".join(f"{key} {value}" for key, value in _environment(one).items()) for one in records}
        parts += [wrapped(f"environment: {text}", indent="  ") for text in sorted(environments)]
        parts.append(fitting(_filled([_row(record) for record in records])))
        parts.append(paragraph("text: digest of the training text in its order; where it is the same, so are both."))
    parts += [paragraph(f"Not as the run left it: {text}") for text in _lost(folder)]
    parts += [paragraph(f"Failed: {failure}") for failure in about.get("failures", [])]
    parts += [paragraph(f"Note: {warning}") for warning in about.get("warnings", [])]
    return "\n\n".join(parts)


def _dials(folder: Path) -> str:
    """Of every task a table of dial values, and what a dial cannot move."""
    from adaptive_bench.store.results import read_table
    from adaptive_bench.tables.dials import dial_tables, immovable

    answers = folder / "answers.json"
    if not answers.is_file():
        check_run(folder)
        raise EnvironmentProblem(
            f"Dial values are read from a finished run's answers.json, but there is none in {str(folder)!r}. "
            f"`{retry_command(folder)}` finishes the run."
        )
    metrics: dict[str, str] = {}
    for row in read_table(folder / "table.json"):
        metrics.setdefault(row["task"], row["metric"])
    parts = []
    tables = dial_tables(read_json(answers)["sweeps"])
    for task, metric in metrics.items():
        some = [table for table in tables if table.task == task]
        rows = _filled([_dial_row(table.name, line) for table in some for line in table.lines(metric)])
        said = [f"Note: {text}" for text in immovable(some, metric)]
        parts += [f"{task} ({metric})", fitting(rows), *map(paragraph, said)] if rows else []
    parts.append(
        paragraph("asked: share of token-branches the dial was set to skip. Savings: measured, means of the seeds.")
    )
    return "\n\n".join(parts)


def _filled(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The same without columns that say nothing."""
    return [{key: value for key, value in row.items() if any(one[key] for one in rows)} for row in rows]


def _dial_row(name: str, line: DialLine) -> dict[str, str]:
    low, high = (f"{end:.4g}" for end in line.dial)
    shares = {title: line.saved.get(key) for title, key in _DIAL_SAVINGS.items()}
    return {
        "method": name,
        "asked": "" if line.asked is None else f"{line.asked:.0%}",
        "dial": low if low == high else f"{low}..{high}",
        **{title: "" if value is None else f"{value:.1%}".replace("-0.0", "0.0") for title, value in shares.items()},
        "score": "" if line.score is None else f"{line.score:.4f}",
    }


def _lost(folder: Path) -> list[str]:
    """What a run has no more of what it measured."""
    from adaptive_bench.store import manifest

    try:
        listed = manifest.read(folder)
        lost = [] if listed is None else listed.lost()
    except EnvironmentProblem as error:
        return [message_of(error)]
    return lost if len(lost) <= _SHOWN else [*lost[:_SHOWN], f"{len(lost) - _SHOWN} more evaluations lack points."]


def _repeating(folder: Path, about: Mapping[str, Any]) -> list[str]:
    """The command that repeats the run, not wrapped for it is to be copied, and what it needs that is not there."""
    plugins = plugins_in(folder)
    here, began_in = Path.cwd(), Path(about.get("directory", "."))
    if began_in.resolve() == here:
        said = [f"repeat it with: {pasteable(run_command(folder, plugins))}"]
    else:  # paths in its config may be relative
        command = run_command(folder.resolve(), plugins, began_in)
        said = [f"repeat it with: cd {shlex.quote(str(began_in))} && {command}"]
    return [*said, *(f"The plugin {path} is not there any more." for path in plugins if not path.is_file())]


def _cell(folder: Path) -> str:
    from adaptive_bench.store.records import FILE, Record

    record = Record(folder)
    parts = [
        f"record {folder}: {record.state}" + (f", {record.reason}" if record.reason else ""),
        _yaml(record.read("config") or {}),
    ]
    for place in (folder, *sorted((folder / "eval").glob("*"))):
        if Record(place).is_damaged:
            parts.append(paragraph(f"{place / FILE} cannot be read; the command of its run makes it again."))
    for section in ("target", "cost", "env", "dial"):
        if (values := record.read(section)) is not None:
            parts.append(f"{section}:\n{_yaml(values)}")
    losses = _losses(folder)
    if losses:
        parts.append(
            f"loss, {losses[0]:.3f} at the first step, {losses[-1]:.3f} at step {len(losses)}\n{curve(losses)}"
        )
    rows = [row for sweep in sorted((folder / "eval").glob("*")) for row in _points(sweep)] or _points(folder)
    if rows:
        parts.append(fitting(rows))
    return "\n\n".join(parts)


def _records(folder: Path, about: Mapping[str, Any]) -> list[Path]:
    """The trainings of a run that has ended."""
    home = folder.parent.parent / "records"
    return [home / name for name in about.get("records", []) if (home / name).is_dir()]


def _row(folder: Path) -> dict[str, str]:
    from adaptive_bench.store.records import Record

    record = Record(folder)
    content = record.read("config") or {}
    losses = _losses(folder)
    order = (record.read("data") or {}).get("order_sha256", "")
    return {
        "record": folder.name,
        "method": str(content.get("method", "?")),
        "seed": str(content.get("seed", "?")),
        "state": record.state,
        "last loss": f"{losses[-1]:.4f}" if losses else "",
        "text": order[:8] if losses else "",
    }


def _environment(folder: Path) -> dict[str, Any]:
    from adaptive_bench.store.records import Record

    return Record(folder).read("env") or {}


def _losses(folder: Path) -> list[float]:
    """The loss of each logged step; a line that was cut by a kill, or is damaged, is left out."""
    log = folder / "train.jsonl"
    if not log.is_file():
        return []
    losses = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            losses.append(float(json.loads(line)["loss"]))
        except (ValueError, KeyError, TypeError):
            continue
    return losses


def _points(folder: Path) -> list[dict[str, str]]:
    from adaptive_bench.store.records import DialEvaluationRecord

    record = DialEvaluationRecord(folder)
    rows = []
    for saving, point in record.points().items():
        scores = ", ".join(f"{name.split(',')[0]} {value:.4f}" for name, value in point.scores.items())
        rows.append(
            {
                "sweep": folder.name,
                "asked": f"{saving:.1%}",
                "saved tokens": f"{point.savings['tokens']:.1%}",
                "saved net": f"{point.savings['net']:.1%}",
                "documents": str(point.docs),
                "scores": scores,
            }
        )
    return rows


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), sort_keys=False, width=terminal_width(), default_flow_style=None).rstrip()
