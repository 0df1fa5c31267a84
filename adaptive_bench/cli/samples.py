"""`adaptive-bench samples`: show what models wrote for each document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, Out, Plugins, Run, find_run, manifest_of
from adaptive_bench.cli.terminal_text import paragraph
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import parse_specs
from adaptive_bench.store.evaluation import COUNTED, saving_name
from adaptive_bench.store.results import read_run
from adaptive_bench.store.runs import run_name

if TYPE_CHECKING:
    from adaptive_bench.store.evaluation import Sample
    from adaptive_bench.store.manifest import EvaluationEntry, Manifest

_WIDTH, _INDENT = 80, 10
_UNITS = {"layers": "FLOPs of the layers", "tokens": "tokens", "core": "core FLOPs", "net": "net FLOPs"}
_SHOWN = 400  # characters of a text, unless everything is wanted


@dataclass(frozen=True)
class Answer:
    """One method's answer to one document.

    Attributes:
        method: The method's spec.
        asked: Share of tokens that the method was asked to save on the task.
        saved: The share it saved there, on the axis of the run's tables.
        output: The text it wrote or chose.
        correct: The headline metric of the document.
    """

    method: str
    asked: float
    saved: float
    output: str
    correct: float | None


@dataclass(frozen=True)
class Document:
    """One document with every method's answer; the prompt is `None` in records of earlier versions."""

    doc: int
    prompt: str | None
    target: str
    answers: tuple[Answer, ...]


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
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Also show what each method writes with the decisions of other tokens.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts instead of their ends.")] = False,
    as_json: AsJson = False,
    plugin: Plugins = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Show prompts, right answers, and what each method wrote, side by side, of the run's first seed."""
    registry.load_plugins(plugin)
    folder = find_run(run, out)
    known = manifest_of(folder)
    wanted = evaluations_of(known, task, methods, shuffled=shuffled)
    if shuffled and not any(one.variant for one in wanted):
        raise UsageError(
            f"--shuffled shows controls that a run with --shuffled measures, got {run_name(folder)!r}, which has none "
            f"of these methods. Leave it out, or give the run's command with --shuffled: nothing is trained again."
        )
    for text in known.unfinished(wanted):
        typer.echo(paragraph(f"Not finished: {text} The point shown may not be the nearest to the saving."), err=True)
    axis, unit = _axis_of(folder)
    found = documents(known, wanted, level, axis)
    if found and first > found[-1].doc:
        raise UsageError(
            f"--first is the number of a document, and {wanted[0].task} has {found[0].doc} to {found[-1].doc} in "
            f"this run, got {first}. Lower it."
        )
    if differing:
        found = [each for each in found if len({answer.correct for answer in each.answers}) > 1]
    found = [each for each in found if each.doc >= first][:docs]
    if as_json:
        typer.echo(json.dumps([asdict(document) for document in found], indent=2, ensure_ascii=False))
    else:
        shown = (_document_text(document, unit, full) for document in found)
        typer.echo("\n\n".join(shown) or "There are no such documents.")


def evaluations_of(
    known: Manifest, task: str | None, methods: str | None, *, shuffled: bool = False
) -> list[EvaluationEntry]:
    """The evaluations of a run's first seed on one task, of the named methods or of all.

    Args:
        shuffled: Whether to include the controls of shuffled decisions.

    Raises:
        UsageError: The task or a method is not in the run, or the run has several tasks and none is named.
        EnvironmentProblem: Nothing is measured.
    """
    tests = [one for one in known.evaluations if one.split == "test" and (shuffled or not one.variant)]
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


def _axis_of(run: Path) -> tuple[str, str]:
    """Name of the saving that a run's tables are matched on, and what it is a share of.

    The saving of tokens stands in for an axis that points do not store.

    Raises:
        EnvironmentProblem: The run's files are damaged.
    """
    about = read_run(run / "config.yaml")
    if problem := about.get("problem"):
        raise EnvironmentProblem(problem)
    axis, phase = about.get("match_on"), about.get("match_phase", "all")
    if axis not in COUNTED:
        return saving_name("tokens"), _UNITS["tokens"]
    return saving_name(axis, phase), _UNITS[axis] + ("" if phase == "all" else f" of {phase}")


def documents(
    known: Manifest, evaluations: Sequence[EvaluationEntry], saving: float, axis: str = "tokens"
) -> list[Document]:
    """The documents that all these evaluations have measured, each at its point nearest to a saving.

    Args:
        axis: Name of the saving (`store.evaluation.saving_name`).

    Raises:
        EnvironmentProblem: Nothing is measured.
    """
    prompts: dict[int, Sample] = {}
    answers: dict[int, list[Answer]] = {}
    targets: dict[int, str] = {}
    for one in evaluations:
        record = known.record_of(one)
        if not (savings := record.savings()):
            raise EnvironmentProblem(
                f"`evaluate {one.method} on {one.task}` has no measured point. Give the run's command again."
            )
        if 0.0 in savings and not any(sample.prompt for sample in prompts.values()):
            prompts = {sample.doc: sample for sample in record.samples(0.0)}
        # Records of earlier versions lack savings by phase; the saving of tokens stands in.
        saved = {asked: point.savings.get(axis, point.savings["tokens"]) for asked, point in record.points().items()}
        asked = min(savings, key=lambda point: abs(saved[point] - saving))
        for sample in record.samples(asked):
            method = f"{one.method}, {one.variant}" if one.variant else one.method
            choices = prompts[sample.doc].choices if sample.doc in prompts else ()
            targets.setdefault(sample.doc, _read(sample.target, choices))
            output = _read(sample.output, choices)
            answers.setdefault(sample.doc, []).append(Answer(method, asked, saved[asked], output, sample.correct))
    return [
        Document(doc, prompts[doc].prompt if doc in prompts else None, targets[doc], tuple(some))
        for doc, some in sorted(answers.items())
        if len(some) == len(evaluations)
    ]


def _read(answer: Any, choices: Sequence[str]) -> str:
    """The text of an answer, which for multiple choice is the index of a choice."""
    return choices[answer] if isinstance(answer, int) and 0 <= answer < len(choices) else str(answer)


def _document_text(document: Document, unit: str, full: bool) -> str:
    """Text of at most 80 columns.

    Args:
        unit: What the savings are shares of.
    """

    def block(name: str, text: str) -> list[str]:
        if not full and len(text) > _SHOWN:
            text = f"... {text[-_SHOWN:]}"
        lines = [
            line
            for part in text.strip().splitlines() or ["(nothing)"]
            for line in textwrap.wrap(part, _WIDTH - _INDENT, drop_whitespace=False) or [""]
        ]
        return [f"{name if not number else '':<{_INDENT}}{line}".rstrip() for number, line in enumerate(lines)]

    prompt = "(not recorded by the version that made this run)" if document.prompt is None else document.prompt
    lines = [f"document {document.doc} ".ljust(_WIDTH, "-"), *block("prompt", prompt)]
    lines += block("target", document.target)
    for answer in document.answers:
        verdict = {None: "", 1.0: ", right", 0.0: ", wrong"}.get(answer.correct, f", {answer.correct}")
        lines += [f"{answer.method}, saves {100 * answer.saved:.1f} % of {unit}{verdict}", *block("", answer.output)]
    return "\n".join(lines)
