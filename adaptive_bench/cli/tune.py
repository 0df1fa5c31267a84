"""`adaptive-bench tune`: looks for the best parameters of methods on validation documents."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from adaptive_bench import registry
from adaptive_bench.cli.config_options import Overrides, takes_config
from adaptive_bench.cli.options import DEFAULT_OUT, Plugins
from adaptive_bench.cli.terminal_text import pasteable, plain_table
from adaptive_bench.config import DEFAULT_PRESET, load_config
from adaptive_bench.validation import MOST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adaptive_bench.tuning import StudyResult
    from adaptive_bench.tuning.result import TrialResult


Preset = Literal["rates", "steps"]


PRESET = "tune"


@takes_config("tasks", "model", "data_dir", "seeds", "out", preset=PRESET)
def tune(
    overrides: Overrides,
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="`rates`: the learning rate of added parameters, by one rule for all methods. `steps`: whether N, 2N "
            "and 4N training steps rank methods alike. Both take `--config nano` and its first seed unless told "
            "otherwise."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", "--method", help="Specs to tune, or `all` that publish a search space. Default: the config's."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="What to search: `sparsity_weight=log:1e-3:1`, `loss=choice:l1|l2`, `stride=int:1:2`, "
            "`train.method_learning_rate=log:1e-3:1e-1`; for one method `gateskip.NAME=...`; may be repeated. "
            "With a preset, the values to try: `train.steps=choice:320|640`. Default: each method's published space."
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="area|score@0.15",
            help="Mean score over the levels (default), or score at a saving.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each method, its defaults included.")] = 12,
    confirm: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_SEEDS,
            help="Train the best of each method and its defaults again with this many other seeds, and keep the one "
            "with the better mean. A best trial of one seed is partly luck.",
        ),
    ] = 0,
    config: Annotated[str | None, typer.Option(help="A preset or a YAML file. Default: tune.")] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study; by default made from the other options.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes to use.")] = None,
    plugin: Plugins = None,
) -> None:
    """Look for the best parameters of methods, with equal trials, on validation documents.

    The same command continues a study that was stopped. `adaptive-bench run --tuned STUDY` takes the best of each
    method and finds its trainings done.
    """
    from adaptive_bench.live_display import Display
    from adaptive_bench.tuning import Objective
    from adaptive_bench.tuning import tune as carry_out

    registry.load_plugins(plugin)
    aim = None if objective is None else Objective.parse(objective)
    # A generator: only `all` has to import every method.
    found = (name for name in registry.names("methods") if registry.get("methods", name).Config.search_space)
    names = ",".join(found) if methods == "all" else methods
    if names is not None:
        overrides = overrides.with_value(["methods"], names, "--methods")
    source = config or (PRESET if preset is None else DEFAULT_PRESET)
    run_config = load_config(source, overrides.values, flags=overrides.flags)
    if preset is not None and "seeds" not in overrides.values:  # one seed is enough to choose a recipe
        run_config = run_config.model_copy(update={"seeds": run_config.seeds[:1]})
    how: dict[str, Any] = {"preset": preset, "confirm": confirm, "name": study, "jobs": jobs}
    with Display() as reporter:
        result = carry_out(run_config, aim, trials, param or [], reporter=reporter, **how)
    _print(result, source, run_config.out)


def _print(result: StudyResult, config: str, out: Path) -> None:
    """Print every trial, the best against the defaults, the notes, and the command that runs the best."""
    from adaptive_bench.tuning.result import studies_folder

    objective = result.definition["objective"]
    typer.echo("\n" + _table(result.trials, objective))
    if result.confirmed:
        typer.echo(f"\nAgain, with seeds {', '.join(map(str, result.definition['confirm']))}:\n")
        typer.echo(_table(result.confirmed, objective))
    of_steps = result.definition.get("preset") == "steps"  # this preset compares orders and has no best trial
    for method, best in result.best.items() if not of_steps else ():
        default = result.default(method)
        than = "" if default is None or default.value is None else f", its defaults {default.value:.4f}"
        typer.echo(f"\nBest of {method}: {best.values_text} with {best.value:.4f}{than}")
    trials = (*result.trials, *result.confirmed)
    failed = [trial for trial in trials if trial.state == "fail"]
    for trial in failed:
        typer.echo(f"\nFailed: {trial.method}, trial {trial.number}: {trial.reason}", err=True)
    if result.notes:
        typer.echo("\n" + "\n".join(result.notes))
    folder = studies_folder(out) / result.name
    if result.best and not of_steps:
        where = [] if out == DEFAULT_OUT else ["--out", str(out)]
        given = ["--config", config, "--methods", ",".join(result.best), "--tuned", result.name, *where]
        typer.echo(f"\n  {pasteable(shlex.join(['adaptive-bench', 'run', *given]))}")
    typer.echo(f"\nWritten to {folder}")
    if failed:
        raise typer.Exit(1)


def _table(trials: Sequence[TrialResult], objective: str) -> str:
    body = [
        [
            trial.method,
            trial.number,
            trial.values_text,
            f"{trial.state}: {trial.reason}" if trial.state == "refused" else trial.state,
            "" if trial.value is None else f"{trial.value:.4f}",
            trial.seconds_text,
        ]
        for trial in trials
    ]
    header = ["method", "trial", "values", "state", objective, "s (train + eval)"]
    return plain_table(body, header)
