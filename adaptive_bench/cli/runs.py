"""`adaptive-bench status`, `show`, `samples`, `export`, `rm` and `clean`: what lies in the output folder, where the
numbers of a run come from, what its models wrote, and what can be deleted.
"""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from adaptive_bench import output, registry
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, Out, Plugins, Run, find_run, run_names
from adaptive_bench.cli.terminal_text import fitting, paragraph, pasteable, terminal_width, wrapped
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import parse_specs
from adaptive_bench.store import atomic
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.evaluation import COUNTED, Axis, MatchPhase
from adaptive_bench.store.runs import (
    alike,
    as_csv,
    as_parquet,
    check_output,
    check_run,
    is_run,
    plugins_in,
    read_run,
    retry_command,
    run_name,
    tidy_rows,
)

if TYPE_CHECKING:
    from adaptive_bench.store.evaluation import Sample
    from adaptive_bench.store.manifest import EvaluationEntry, Manifest, Removable

_OF_WORK = ("running", "stopped", "partial", "failed", "damaged", "planned", "done")  # states, in the order shown


def status(
    out: Out = DEFAULT_OUT,
    everything: Annotated[bool, typer.Option("--all", help="List finished work as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what runs, what stopped, what failed and why, and what is damaged.

    `stopped` is work whose process is gone, and `partial` is work that was interrupted: the command of their run
    continues both.
    """
    from adaptive_bench.store.manifest import pieces

    check_output(out)
    found = sorted(pieces(out), key=lambda piece: _OF_WORK.index(piece.state))
    if as_json:  # with finished work, whatever --all says
        typer.echo(json_text([asdict(piece) | {"folder": str(piece.folder)} for piece in found]), nl=False)
    else:
        counts = Counter(piece.state for piece in found)
        summary = ", ".join(f"{counts[state]} {state}" for state in _OF_WORK if counts[state])
        typer.echo(f"{len(found)} pieces of work in {out}: {summary or 'no process has begun yet'}")
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


_SETTINGS = ("model", "methods", "tasks", "seeds", "levels", "match_on", "match_phase", "train_on", "data_dir")


def show(run: Run, out: Out = DEFAULT_OUT) -> None:
    """Show configuration, command, environment, and how the training went.

    `adaptive-bench samples RUN` shows what the models were asked and wrote.
    """
    folder = find_run(run, out)
    if not is_run(folder):  # the folder of an entry is shown as well
        check_run(folder)
    typer.echo(run_text(folder))


def run_text(folder: Path) -> str:
    """What is known of a run, in paragraphs."""
    from adaptive_bench.store.records import Record

    about = read_run(folder / "config.yaml")
    settings = {key: about[key] for key in _SETTINGS if about.get(key) is not None}
    settings |= {key: about[key] for key in ("train", "evaluation") if key in about}
    problem = f", {about['problem']}" if "problem" in about else ""
    took = f" after {about['took_s']:.0f} s" if "took_s" in about else ""
    parts = [
        f"run {run_name(folder)}: {about.get('state', 'unfinished')}{problem}",
        f"finished {about.get('finished', 'never')}{took}",
        *(_repeating(folder, about) if (folder / "config.yaml").is_file() else ()),
        yaml.safe_dump(settings, sort_keys=False, width=terminal_width(), default_flow_style=None).rstrip(),
    ]
    home = folder.parent.parent / "records"
    if records := [Record(home / name) for name in about.get("records", []) if (home / name).is_dir()]:
        environments = {
            ", ".join(f"{key} {value}" for key, value in (one.read("env") or {}).items()) for one in records
        }
        # One line for each environment: usually a single one, more if a run was continued elsewhere.
        parts += [wrapped(f"environment: {text}", indent="  ") for text in sorted(environments)]
        rows = []
        for record in records:
            content, losses = record.read("config") or {}, record.losses()
            row = {"record": record.folder.name, "method": str(content.get("method", "?"))}
            row |= {"seed": str(content.get("seed", "?")), "state": record.state}
            text = (record.read("data") or {}).get("order_sha256", "")[:8]
            rows.append(row | ({"last loss": f"{losses[-1][1]:.4f}", "text": text} if losses else {}))
        parts.append(fitting(rows))
        parts.append(paragraph("text: digest of the training text in its order; if it is equal, so are both."))
    parts += [paragraph(f"Failed: {failure}") for failure in about.get("failures", [])]
    parts += [paragraph(f"Note: {warning}") for warning in about.get("warnings", [])]
    return "\n\n".join(parts)


def _repeating(folder: Path, about: Mapping[str, Any]) -> list[str]:
    """The command that repeats the run, not wrapped so that it can be copied, and plugins it needs that are missing."""
    began_in = Path(about.get("directory", "."))
    if began_in.resolve() == Path.cwd():
        command = pasteable(retry_command(folder))
    else:  # paths in its config may be relative
        command = f"cd {shlex.quote(str(began_in))} && {retry_command(folder.resolve())}"
    gone = (f"The plugin {path} is not there any more." for path in plugins_in(folder) if not path.is_file())
    return [f"repeat it with: {command}", *gone]


_TEXT_WIDTH, _INDENT = 80, 10
_UNITS = {"layers": "FLOPs of the layers", "tokens": "tokens", "core": "core FLOPs", "net": "net FLOPs"}
_ENDS = 400  # characters of a text, unless everything is wanted


def samples(
    run: Run,
    task: Annotated[str | None, typer.Option(help="Which task; needed if the run has several.")] = None,
    level: Annotated[
        float,
        typer.Option(min=0, max=1, help="A saving on the axis of the run's table; shows the measured point nearest."),
    ] = 0.15,
    methods: Annotated[str | None, typer.Option(help="Only these specs of the run.")] = None,
    docs: Annotated[int, typer.Option(min=1, help="How many documents.")] = 3,
    first: Annotated[int, typer.Option(min=0, help="Number of the first document.")] = 0,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only documents that the methods do not all get right or wrong.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts instead of their ends.")] = False,
    as_json: AsJson = False,
    plugin: Plugins = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Show prompts, right answers, and what each method wrote, side by side, of the run's first seed."""
    from adaptive_bench.store import manifest  # imports NumPy, which no help needs

    registry.load_plugins(plugin)
    folder = find_run(run, out)
    known = manifest.of_run(folder)
    wanted = evaluations_of(known, task, methods)
    for text in known.unfinished(wanted):
        typer.echo(paragraph(f"Not finished: {text} The point shown may not be the nearest to the saving."), err=True)
    axis, phase = _axis_of(folder)
    found = documents(known, wanted, level, axis, phase)
    if differing:
        found = [each for each in found if len({answer["correct"] for answer in each["answers"]}) > 1]
    found = [each for each in found if each["doc"] >= first][:docs]
    if as_json:
        typer.echo(json_text(found), nl=False)
    else:
        unit = _UNITS[axis] + ("" if phase == "all" else f" of {phase}")
        shown = (_document_text(document, unit, full) for document in found)
        typer.echo("\n\n".join(shown) or "There are no such documents.")


def evaluations_of(known: Manifest, task: str | None, methods: str | None) -> list[EvaluationEntry]:
    """The evaluations of a run's first seed on one task, of the named methods or of all."""
    # Neither the controls of shuffled decisions nor documents on which choices are made.
    tests = [one for one in known.evaluations if one.split == "test" and not one.variant]
    if not tests:
        raise EnvironmentProblem("Nothing of this run is measured yet. Give the run's command again.")
    tasks = list(dict.fromkeys(one.task for one in tests))
    if task not in tasks and (task is not None or len(tasks) > 1):
        got = "none" if task is None else repr(task)
        raise UsageError(f"--task is one of the run's tasks, {', '.join(tasks)}, got {got}.")
    seed = known.training_of(tests[0]).seed
    chosen = task or tasks[0]
    found = [one for one in tests if one.task == chosen and known.training_of(one).seed == seed]
    if methods is None:
        return found
    specs, there = [str(spec) for spec in parse_specs(methods)], list(dict.fromkeys(one.method for one in found))
    if unknown := [spec for spec in specs if spec not in there]:
        raise UsageError(f"--methods takes specs of the run, {', '.join(there)}, got {unknown[0]!r}.")
    return [one for spec in specs for one in found if one.method == spec]


def _axis_of(run: Path) -> tuple[Axis, MatchPhase]:
    """The axis and phase that a run's tables are matched on; the saving of tokens stands in for what is not counted."""
    about = read_run(run / "config.yaml")
    if problem := about.get("problem"):
        raise EnvironmentProblem(problem)
    axis, phase = about.get("match_on"), about.get("match_phase", "all")
    return (axis, phase) if axis in COUNTED else ("tokens", "all")


def documents(
    known: Manifest,
    evaluations: Sequence[EvaluationEntry],
    saving: float,
    axis: Axis = "tokens",
    phase: MatchPhase = "all",
) -> list[dict[str, Any]]:
    """The documents that all these evaluations have measured, each at its point nearest to a saving: prompt, right
    answer, and each method's answer with the saving it was asked for, what it saved, and whether it is right.
    """
    records = [known.record_of(one) for one in evaluations]
    prompts: dict[int, Sample] = {}  # stored with the answers at which nothing is skipped
    for record in records:
        if not prompts and 0.0 in record.savings():
            prompts = {sample.doc: sample for sample in record.samples(0.0) if sample.prompt}
    found: dict[int, dict[str, Any]] = {}
    for one, record in zip(evaluations, records, strict=True):
        if not (points := record.points()):
            raise EnvironmentProblem(
                f"`evaluate {one.method} on {one.task}` has no measured point. Give the run's command again."
            )
        shares = {asked: point.saved(axis, phase) for asked, point in points.items()}
        # Log-likelihood tasks have nothing to decode: tokens stand in.
        saved = {asked: points[asked].savings["tokens"] if share is None else share for asked, share in shares.items()}
        asked = min(saved, key=lambda point: abs(saved[point] - saving))
        for sample in record.samples(asked):
            first = prompts.get(sample.doc)
            choices = () if first is None else first.choices
            about = {"doc": sample.doc, "prompt": None if first is None else first.prompt}
            place = found.setdefault(sample.doc, about | {"target": _read(sample.target, choices), "answers": []})
            answer = {"method": one.method, "asked": asked, "saved": saved[asked]}
            place["answers"].append(answer | {"output": _read(sample.output, choices), "correct": sample.correct})
    return [one for _, one in sorted(found.items()) if len(one["answers"]) == len(evaluations)]


def _read(answer: Any, choices: Sequence[str]) -> str:
    """The text of an answer, which for multiple choice is the index of a choice."""
    return choices[answer] if isinstance(answer, int) and 0 <= answer < len(choices) else str(answer)


def _document_text(document: Mapping[str, Any], unit: str, full: bool) -> str:
    """Text of at most 80 columns; `unit` says what the savings are shares of."""

    def block(name: str, text: str) -> list[str]:
        if not full and len(text) > _ENDS:
            text = f"... {text[-_ENDS:]}"
        lines = [
            line
            for part in text.strip().splitlines() or ["(nothing)"]
            # Indentation is part of what was written.
            for line in textwrap.wrap(part, _TEXT_WIDTH - _INDENT, drop_whitespace=False) or [""]
        ]
        return [f"{name if not number else '':<{_INDENT}}{line}".rstrip() for number, line in enumerate(lines)]

    lines = [f"document {document['doc']} ".ljust(_TEXT_WIDTH, "-"), *block("prompt", document["prompt"] or "")]
    lines += block("target", document["target"])
    for answer in document["answers"]:
        verdict = {None: "", 1.0: ", right", 0.0: ", wrong"}.get(answer["correct"], f", {answer['correct']}")
        lines.append(f"{answer['method']}, saves {100 * answer['saved']:.1f} % of {unit}{verdict}")
        lines += block("", answer["output"])
    return "\n".join(lines)


def export(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            autocompletion=run_names,
            help="Names of runs (see `list runs`), their beginnings, folders or `last`; without any, all finished.",
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", help="A .csv, .json or .parquet; default: -, CSV on standard output.")
    ] = output.STDOUT,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write one row for each method, task, metric, axis, phase and level: what `load_results()` gives in Python."""
    form = to.suffix or ".csv"  # standard output has no suffix
    if form not in (".csv", ".json", ".parquet"):
        raise UsageError(f"A file ends as its format, .csv, .json or .parquet, got {str(to)!r}. Rename it.")
    rows = tidy_rows(*(runs or []), out=out, tell=lambda text: typer.echo(paragraph(text), err=True))
    if form == ".parquet":
        output.write_bytes(to, as_parquet(rows))
    else:
        output.write_text(to, json.dumps(alike(rows), ensure_ascii=False) + "\n" if form == ".json" else as_csv(rows))
    about = f"{len(rows)} rows of {len({row['run'] for row in rows})} run(s) written to {output.named(to)}"
    typer.echo(about, err=output.is_stdout(to))


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, with sizes, and delete nothing.")]


def rm(run: Run, yes: Yes = False, dry_run: DryRun = False, out: Out = DEFAULT_OUT) -> None:
    """Delete a run: its folder, and its records that nothing else refers to. A run that is under way is refused.

    Records that other runs, trainings that start from them, or trials use stay.
    """
    from adaptive_bench.store.manifest import removable_with

    folder = find_run(run, out)
    _delete(removable_with(folder), f"the run {run_name(folder)}", yes, dry_run)


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
    from adaptive_bench.store.manifest import unreferenced

    check_output(out)
    if found := unreferenced(out, trials=trials):
        _delete(found, f"what no run in {out} refers to", yes, dry_run)
    else:
        owners = "a run" if trials else "a run or a trial"  # with --trials a trial keeps nothing
        typer.echo(f"Every record in {out} belongs to {owners}: nothing is to be deleted.")


def _delete(found: Sequence[Removable], what: str, yes: bool, dry_run: bool) -> None:
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
    for one in found:
        atomic.remove(one.folder)
    typer.echo(f"\n{total}: deleted.")
