"""`adaptive-bench samples`: what the methods of a run wrote, document by document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Run, manifest_of
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import parse_specs
from adaptive_bench.store.evaluations import COUNTED, saving_name
from adaptive_bench.store.results import read_run
from adaptive_bench.store.runs import run_name

if TYPE_CHECKING:
    from adaptive_bench.store.evaluations import Evaluation, Sample
    from adaptive_bench.store.manifest import EvaluationEntry, Manifest

_WIDTH, _INDENT = 80, 10
UNITS = {"tokens": "tokens", "core": "core FLOPs", "net": "net FLOPs"}
_SHOWN = 400  # characters of a text, unless everything is wanted


@dataclass(frozen=True)
class Answer:
    """What one method made of one document.

    Attributes:
        method: Its spec.
        asked: Share of tokens it was asked to save on the task.
        saved: What it saved there, on the axis of the run's tables.
        output: What it wrote or chose.
        correct: The headline metric of the document.
    """

    method: str
    asked: float
    saved: float
    output: str
    correct: float | None


@dataclass(frozen=True)
class Document:
    """One document, and every method's answer; the prompt is `None` in records of earlier versions."""

    doc: int
    prompt: str | None
    target: str
    answers: tuple[Answer, ...]


def samples(
    run: Run,
    task: Annotated[str | None, typer.Option(help="Which task; needed where the run has several.")] = None,
    level: Annotated[
        float,
        typer.Option(min=0, max=1, help="A saving on the axis of the run's table: the measured point next to it."),
    ] = 0.15,
    methods: Annotated[str | None, typer.Option(help="Only these specs of the run.")] = None,
    docs: Annotated[int, typer.Option(min=1, help="How many documents.")] = 3,
    first: Annotated[int, typer.Option(min=0, help="Number of the first document.")] = 0,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only documents that the methods do not all get right or wrong.")
    ] = False,
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Beside each method what it writes with the decisions of other tokens.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts instead of their ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
) -> None:
    """Show prompts, right answers, and what each method wrote, side by side, of the run's first seed."""
    registry.load_plugins(plugin)
    known = manifest_of(run)
    wanted = evaluations_of(known, task, methods, shuffled=shuffled)
    if shuffled and not any(one.variant for one in wanted):
        raise UsageError(
            f"--shuffled shows controls that a run with --shuffled measures, got {run_name(run)!r}, which has none of "
            f"these methods. Leave it out, or give the run's command with --shuffled: nothing is trained again."
        )
    for text in known.unfinished(wanted):
        typer.echo(paragraph(f"Not finished: {text} What is shown of it may not be next to the saving."), err=True)
    axis, unit = axis_of(run)
    found = documents(known, wanted, level, axis)
    if found and first > found[-1].doc:
        raise UsageError(
            f"--first is the number of a document, of which {wanted[0].task} has {found[0].doc} to {found[-1].doc} in "
            f"this run, got {first}. Lower it."
        )
    if differing:
        found = [each for each in found if len({answer.correct for answer in each.answers}) > 1]
    found = [each for each in found if each.doc >= first][:docs]
    if as_json:
        typer.echo(json.dumps([asdict(document) for document in found], indent=2, ensure_ascii=False))
    elif found:
        typer.echo("\n\n".join(shown(document, unit, full=full) for document in found))
    else:
        typer.echo("There are no such documents.")


def evaluations_of(
    known: Manifest, task: str | None, methods: str | None, *, shuffled: bool = False
) -> list[EvaluationEntry]:
    """What a run's first seed was measured on: one task, the methods that are named or all.

    Args:
        shuffled: The controls of shuffled decisions as well.

    Raises:
        UsageError: There is no such task or method, or several tasks and none is named.
        EnvironmentProblem: Nothing is measured.
    """
    tests = [one for one in known.evaluations if one.split == "test" and (shuffled or not one.variant)]
    if not tests:
        raise EnvironmentProblem("Nothing of this run is measured yet. Give the run's command again.")
    chosen = _one_of(list(dict.fromkeys(one.task for one in tests)), task)
    seed = known.training_of(tests[0]).seed
    found = [one for one in tests if one.task == chosen and known.training_of(one).seed == seed]
    return _wanted(found, methods)


def axis_of(run: Path) -> tuple[str, str]:
    """Name of the saving that a run's tables are made by, and what it is a share of; tokens where no point knows it.

    Raises:
        EnvironmentProblem: The run does not say, as its files are damaged.
    """
    about = read_run(run / "config.yaml")
    if problem := about.get("problem"):
        raise EnvironmentProblem(problem)
    axis, phase = about.get("match_on"), about.get("match_phase", "all")
    if axis not in COUNTED:
        return saving_name("tokens"), UNITS["tokens"]
    return saving_name(axis, phase), UNITS[axis] + ("" if phase == "all" else f" of {phase}")


def documents(
    known: Manifest, evaluations: Sequence[EvaluationEntry], saving: float, axis: str = "tokens"
) -> list[Document]:
    """The documents all these evaluations have measured, at the point of each that is next to a saving.

    Args:
        axis: Name of the saving (`store.evaluations.saving_name`).

    Raises:
        EnvironmentProblem: Nothing is measured.
    """
    prompts: dict[int, Sample] = {}
    answers: dict[int, list[Answer]] = {}
    targets: dict[int, Any] = {}
    for one in evaluations:
        record = known.record_of(one)
        if not (savings := record.savings()):
            raise EnvironmentProblem(
                f"`evaluate {one.method} on {one.task}` has no measured point. Give the run's command again."
            )
        if 0.0 in savings and not any(sample.prompt for sample in prompts.values()):
            prompts = {sample.doc: sample for sample in record.samples(0.0)}
        saved = {asked: _saved(point, axis) for asked, point in record.points().items()}
        asked = min(savings, key=lambda point: abs(saved[point] - saving))
        for sample in record.samples(asked):
            targets.setdefault(sample.doc, sample.target)
            answers.setdefault(sample.doc, []).append(
                Answer(
                    f"{one.method}, {one.variant}" if one.variant else one.method,
                    asked,
                    saved[asked],
                    _output(sample, prompts.get(sample.doc)),
                    sample.correct,
                )
            )
    return [
        Document(doc, prompts[doc].prompt if doc in prompts else None, str(targets[doc]), tuple(some))
        for doc, some in sorted(answers.items())
        if len(some) == len(evaluations)
    ]


def _saved(point: Evaluation, axis: str) -> float:
    """What a point saves; tokens where a record of an earlier version does not know it by phase."""
    return point.savings.get(axis, point.savings["tokens"])


def shown(document: Document, unit: str, *, full: bool) -> str:
    """Text of at most 80 columns.

    Args:
        unit: What the savings are shares of.
    """
    prompt = "(not recorded by the version that made this run)" if document.prompt is None else document.prompt
    lines = [f"document {document.doc} ".ljust(_WIDTH, "-"), *_block("prompt", prompt, full)]
    lines += _block("target", document.target, full)
    for answer in document.answers:
        verdict = {None: "", 1.0: ", right", 0.0: ", wrong"}.get(answer.correct, f", {answer.correct}")
        lines += [f"{answer.method}, saves {100 * answer.saved:.1f} % of {unit}{verdict}"]
        lines += _block("", answer.output, full)
    return "\n".join(lines)


def _block(name: str, text: str, full: bool) -> Iterable[str]:
    if not full and len(text) > _SHOWN:
        text = f"... {text[-_SHOWN:]}"
    wrapped = [
        line
        for part in text.strip().splitlines() or ["(nothing)"]
        for line in textwrap.wrap(part, _WIDTH - _INDENT, drop_whitespace=False) or [""]
    ]
    return [f"{name if not number else '':<{_INDENT}}{line}".rstrip() for number, line in enumerate(wrapped)]


def _output(sample: Sample, asked: Sample | None) -> str:
    """Text written, or the choice that was found likeliest."""
    choices = () if asked is None else asked.choices
    if isinstance(sample.output, int) and sample.output < len(choices):
        return choices[sample.output]
    return str(sample.output)


def _one_of(tasks: Sequence[str], wanted: str | None) -> str:
    if wanted is None and len(tasks) == 1:
        return tasks[0]
    if wanted is None or wanted not in tasks:
        got = "none" if wanted is None else repr(wanted)
        raise UsageError(f"--task is one of the run's tasks, {', '.join(tasks)}, got {got}.")
    return wanted


def _wanted(evaluations: Sequence[EvaluationEntry], methods: str | None) -> list[EvaluationEntry]:
    if methods is None:
        return list(evaluations)
    by_spec: dict[str, list[EvaluationEntry]] = {}
    for one in evaluations:
        by_spec.setdefault(one.method, []).append(one)
    specs = [str(spec) for spec in parse_specs(methods)]
    if unknown := [spec for spec in specs if spec not in by_spec]:
        raise UsageError(f"--methods takes specs of the run, {', '.join(by_spec)}, got {unknown[0]!r}.")
    return [one for spec in specs for one in by_spec[spec]]
