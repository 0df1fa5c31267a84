"""`adaptive-bench status`, `rm`, `clean` and `export`, and the table of `list runs`."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, Out, Run, find_run, run_names
from adaptive_bench.cli.terminal_text import fits, fitting, paragraph, terminal_width, wrapped
from adaptive_bench.errors import UsageError
from adaptive_bench.store.results import as_csv, as_json, as_parquet, read_run, tidy_rows
from adaptive_bench.store.runs import check_output, run_folders, run_name

if TYPE_CHECKING:
    from adaptive_bench.store.inventory import Removable

STATES = ("done", "partial", "unfinished", "damaged")
_OF_WORK = ("running", "stopped", "partial", "failed", "damaged", "planned", "done")  # states, in the order shown
_UNSAID = {"documents": "all", "shots": "own"}  # shown for keys that a config leaves unset
_TO_THE_MINUTE = len("2026-11-21T19:20")


@dataclass(frozen=True)
class Wanted:
    """Selects the runs to list: those that fit every attribute that is not `None`.

    Attributes:
        model, task, method: A part of the model's name, of the name of any task, of any method spec.
        state: One of `STATES`.
        since: The first day, such as `2026-11-20`.
    """

    model: str | None = None
    task: str | None = None
    method: str | None = None
    state: str | None = None
    since: str | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            hint = registry.did_you_mean(self.state, STATES)
            raise UsageError(f"--status is one of {', '.join(STATES)}, got {self.state!r}. {hint}")
        try:  # Python also reads `20261120` as a day, but as text it sorts differently
            is_day = self.since is None or date.fromisoformat(self.since).isoformat() == self.since
        except ValueError:
            is_day = False
        if not is_day:
            raise UsageError(f"--since takes a day like 2026-11-20, got {self.since!r}. Write it so.")

    def fit(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is wanted."""
        return (
            (self.model is None or self.model in str(run["model"]))
            and (self.task is None or any(self.task in str(name) for name in run["tasks"]))
            and (self.method is None or any(self.method in str(spec) for spec in run["methods"]))
            and self.state in (None, run["state"])
            and (self.since is None or run["date"] >= self.since)
        )


def runs_in(out: Path, wanted: Wanted) -> list[dict[str, Any]]:
    """The runs in a folder that are wanted, newest first. A damaged run is listed with its problem."""
    return [run for run in map(_listed_run, run_folders(out)) if wanted.fit(run)]


def _listed_run(folder: Path) -> dict[str, Any]:
    about = read_run(folder / "config.yaml")
    measuring, training = about.get("evaluation", {}), about.get("train", {})
    return {
        "run": run_name(folder),
        "state": about.get("state", "unfinished"),
        "model": about.get("model", ""),
        "methods": about.get("methods", []),
        "tasks": about.get("tasks", []),
        "seeds": about.get("seeds", []),
        "steps": training.get("steps"),
        "documents": measuring.get("limit"),
        "shots": measuring.get("num_fewshot"),
        "date": str(about.get("finished") or about.get("began") or "")[:_TO_THE_MINUTE].replace("T", " "),
        "problem": about.get("problem", ""),
        "folder": str(folder),
    }


def run_table(runs: Iterable[Mapping[str, Any]], width: int | None = None) -> str:
    """The runs as one table if it fits the width, else as a paragraph each."""

    def text(key: str, value: Any) -> str:
        if value is None:
            return _UNSAID.get(key, "")
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    rows = []
    for run in runs:
        row = {key: text(key, value) for key, value in run.items() if key not in ("problem", "folder")}
        rows.append(row | {"state": row["state"] + (f": {run['problem']}" if run["problem"] else "")})
    if fits(rows, width):
        return fitting(rows, width)
    return "\n\n".join(_run_paragraph(row, (width or terminal_width()) - 2) for row in rows)


def _run_paragraph(row: Mapping[str, str], width: int) -> str:
    lines = ["  ".join(filter(None, (row["run"], row["date"], row["state"])))]
    if row["methods"]:
        shots = "each task's worked examples" if row["shots"] == "own" else f"{row['shots']} worked examples"
        seeds = f"seed{'s' if ',' in row['seeds'] else ''} {row['seeds']}"
        how = f"{row['steps']} steps, {row['documents']} documents, {shots}, {seeds}"
        lines += [f"{row['methods']} on {row['tasks']}", f"model {row['model']}, {how}"]
    return "\n  ".join(wrapped(line, width, "  ") for line in lines)


def status(
    out: Out = DEFAULT_OUT,
    everything: Annotated[bool, typer.Option("--all", help="List finished work as well.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every five seconds until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what runs, what stopped, what failed and why, and what is damaged.

    `stopped` is work whose process is gone, and `partial` is work that was interrupted: the command of their run
    continues both.
    """
    from adaptive_bench.store.inventory import pieces

    check_output(out)
    while True:
        found = sorted(pieces(out), key=lambda piece: _OF_WORK.index(piece.state) if piece.state in _OF_WORK else 0)
        if as_json:
            typer.echo(json.dumps([asdict(piece) | {"folder": str(piece.folder)} for piece in found], indent=2))
        else:
            counts = Counter(piece.state for piece in found)
            summary = ", ".join(f"{counts[state]} {state}" for state in _OF_WORK if counts[state])
            typer.echo(f"{len(found)} pieces of work in {out}: {summary or 'nothing was begun'}")
            shown = ("state", "work", "method", "seed", "progress", "since")
            rows = [
                {key: "" if (value := getattr(piece, key)) is None else str(value) for key in shown}
                for piece in found
                if everything or piece.state != "done"
            ]
            if rows:
                typer.echo("\n" + fitting(rows))
            for piece in found:
                if piece.state in ("failed", "damaged"):
                    typer.echo("\n" + paragraph(f"{piece.work} {piece.method}: {piece.reason} See {piece.folder}"))
        if not watch:
            return
        time.sleep(5)
        typer.echo()


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, with sizes, and delete nothing.")]


def rm(run: Run, yes: Yes = False, dry_run: DryRun = False, out: Out = DEFAULT_OUT) -> None:
    """Delete a run: its folder, and its records that nothing else refers to. A run that is under way is refused.

    Records that other runs, trainings that start from them, or trials use stay.
    """
    from adaptive_bench.store.inventory import of_run

    folder = find_run(run, out)
    _delete(of_run(folder), f"the run {run_name(folder)}", yes, dry_run)


def clean(
    out: Out = DEFAULT_OUT,
    trials: Annotated[
        bool,
        typer.Option(
            "--trials",
            help="Also delete trials of `tune`, finished or not: trainings never evaluated on test documents. `tune` "
            "would train them again.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete records that no run refers to.

    Records that a run in the folder refers to stay. Runs that were moved out of the folder do not count.
    """
    from adaptive_bench.store.inventory import of_output

    check_output(out)
    if found := of_output(out, trials=trials):
        _delete(found, f"what no run in {out} refers to", yes, dry_run)
    else:
        owners = "a run" if trials else "a run or a trial"
        typer.echo(f"Every record in {out} belongs to {owners}: nothing is to be deleted.")


def _delete(found: Sequence[Removable], what: str, yes: bool, dry_run: bool) -> None:
    from adaptive_bench.store.inventory import remove

    rows = [{"folder": str(one.folder), "what": one.what, "MB": f"{one.size_bytes / 1e6:.2f}"} for one in found]
    typer.echo(fitting(rows))
    total = f"{len(found)} folder(s), {sum(one.size_bytes for one in found) / 1e6:.2f} MB"
    if dry_run:
        typer.echo(f"\n{total}: nothing was deleted.")
        return
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"Without a terminal to ask at, {what} is deleted with --yes alone. --dry-run only lists it.")
    if not yes:
        typer.echo()
        typer.confirm(f"Delete {what}, {total}?", abort=True)
    remove(found)
    typer.echo(f"\n{total}: deleted.")


class Form(StrEnum):
    """A file format."""

    csv = "csv"
    parquet = "parquet"
    json = "json"


def export(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            autocompletion=run_names,
            help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, all finished.",
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="csv, parquet or json; default: by the file's ending, else csv."),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", parser=output.file, help="File to write; default: -, standard output.")
    ] = output.STDOUT,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    ending = to.suffix.removeprefix(".")
    named_so = Form(ending) if ending in set(Form) else None
    if form is None and named_so is None and ending and not output.is_stdout(to):
        raise UsageError(
            f"A file ends as its format, .csv, .json or .parquet, got {str(to)!r}. Rename it, or give --format."
        )
    if form is not None and named_so not in (None, form):
        raise UsageError(f"A file ends as its format, got --format {form} and -o {str(to)!r}. Leave --format out.")
    form = form or named_so or Form.csv
    if form is Form.parquet and output.is_stdout(to) and sys.stdout.isatty():
        raise UsageError("Parquet is no text that a terminal could show. Name a file with -o.")
    rows = tidy_rows(*(runs or []), out=out, tell=_tell)
    if form is Form.parquet:
        output.write_bytes(to, as_parquet(rows))
    else:
        output.write_text(to, as_csv(rows) if form is Form.csv else as_json(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {output.named(to)}"
    typer.echo(about, err=output.is_stdout(to))


def _tell(text: str) -> None:
    typer.echo(paragraph(text), err=True)
