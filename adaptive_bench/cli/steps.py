"""`adaptive-bench steps`: whether the methods are trained for long enough that their order does not hang on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import output
from adaptive_bench.cli.config_options import ConfigCommand, Overrides
from adaptive_bench.cli.report import report
from adaptive_bench.cli.values import is_count, numbers_value

if TYPE_CHECKING:
    from adaptive_bench.runs.steps import StepComparison


class StepsCommand(ConfigCommand):
    """See the command's own options for the numbers of steps."""

    keys = ("methods", "tasks", "seeds", "out")


def steps(
    ctx: typer.Context,
    config: Annotated[
        str | None, typer.Option(help="A preset or a YAML file: methods, tasks, model, recipe. Default: nano.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Each twice the one before; default: N, 2N and 4N of the config's train.steps.")
    ] = None,
    level: Annotated[
        float, typer.Option(min=0, max=1, help="Saving at which methods are compared, one of the tasks' levels.")
    ] = 0.15,
    write: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=output.file,
            help="JSON file for all of it (RUN/steps.json); - for standard output.",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes to use.")] = None,
) -> None:
    """Train each method for N, 2N and 4N steps and compare them on validation documents.

    Enough is the least N at which no order of two methods reverses when steps are doubled. One seed, the config's
    first, unless --seeds says otherwise. Trainings are those of a run with that many steps, which finds them done.
    """
    if write is not None:
        output.check(write)  # before what would be lost is measured
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.steps import compare_steps

    overrides: Overrides = ctx.obj
    run_config = overrides.load_for_one_seed(config or StepsCommand.preset)
    rule = "numbers of steps, each twice the one before, such as 320,640,1280"
    asked = None if steps is None else numbers_value(steps, "--steps", int, rule, is_count)
    with open_reporter() as reporter:
        found = compare_steps(run_config, asked, level, reporter, jobs)
    report(shown(found), write, lambda: found.to_json(run_config), found.failures)


def shown(found: StepComparison) -> str:
    """A table for each task, methods by steps, and the verdict."""
    from tabulate import tabulate

    parts = []
    for task in dict.fromkeys(one.task for one in found.scores):
        cells = {(one.method, one.steps): one.score for one in found.scores if one.task == task}
        moving = {(method, one.steps) for one in found.doublings if one.task == task for method in one.not_converged}
        methods = list(dict.fromkeys(method for method, _ in cells))
        body = [
            [method, *(_cell(cells.get((method, number)), (method, number) in moving) for number in found.steps)]
            for method in methods
        ]
        header = [f"{task} at {100 * found.level:.4g} %", *(f"{number} steps" for number in found.steps)]
        align = ("left", *("right" for _ in found.steps))
        parts.append(tabulate(body, header, tablefmt="simple", disable_numparse=True, colalign=align))
    return "\n\n".join([*parts, said(found)])


def said(found: StepComparison) -> str:
    """The verdict in sentences."""
    from adaptive_bench.tables.doubling import reversals_text

    sentences = []
    if found.enough is None:
        sentences.append(f"None of {', '.join(map(str, found.steps[:-1]))} steps is shown to be enough.")
    else:
        sentences.append(
            f"{found.enough} steps are enough: no order that tests tell apart reverses at {2 * found.enough}."
        )
    for number in found.steps[:-1]:
        tasks = [one for one in found.doublings if one.steps == number]
        reversals = [(one.task, *pair) for one in tasks for pair in one.reversals]
        apart, pairs = sum(one.told_apart[0] for one in tasks), sum(one.pairs for one in tasks)
        sentences.append(reversals_text(number, apart, pairs, reversals))
    if any(one.not_converged for one in found.doublings):
        sentences.append("# not converged: trained for twice as many steps, the method certainly scores differently.")
    return "\n".join(sentences)


def _cell(score: float | None, moves: bool) -> str:
    return "n/a" if score is None else f"{score:.3f}{'#' if moves else ''}"
