"""`adaptive-bench run`: train, sweep, match and print the table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import registry
from adaptive_bench.cli.completion import names_of
from adaptive_bench.cli.config_options import PANELS, Overrides
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import naming_plugins
from adaptive_bench.cli.strict import Debug
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.hub import OutOfReach
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import MOST_MINUTES

if TYPE_CHECKING:
    from adaptive_bench.config import RunConfig

_WHAT, _HOW, _WHERE = PANELS


class Overwriting(StrEnum):
    """Names of `adaptive_bench.runs.work.overwrite`, which is too heavy to be imported for `--help`."""

    only_missing = "only-missing"
    always = "always"
    never = "never"
    only_cache = "only-cache"


def run(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Option(
            help="A preset of `list configs` or a YAML file; flags override it.",
            rich_help_panel=_WHAT,
            autocompletion=names_of("configs"),
        ),
    ] = None,
    any_model: Annotated[
        bool, typer.Option("--any-model", help="Use a preset on a model it is not meant for.", rich_help_panel=_WHAT)
    ] = False,
    no_controls: Annotated[
        bool,
        typer.Option(
            "--no-controls",
            help="Compare the --methods alone, without the dense model and trained static depth.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A first look in minutes: fewer steps, documents, calibration examples and points. Not to be quoted.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    tuned: Annotated[
        str | None,
        typer.Option(help="A study of `adaptive-bench tune`: the best of each method it tuned.", rich_help_panel=_HOW),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="Python file that registers methods or tasks; may be repeated.", rich_help_panel=_WHERE),
    ] = None,
    overwrite: Annotated[
        Overwriting,
        typer.Option(
            help="Of results on disk: compute what is missing; compute all again; never touch a piece of work that "
            "was begun; or compute nothing.",
            rich_help_panel=_WHERE,
        ),
    ] = Overwriting.only_missing,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes at once; otherwise as fits the machine.", rich_help_panel=_WHERE),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="Do a part: `2/8` of eight commands, which may run anywhere.", rich_help_panel=_WHERE),
    ] = None,
    cell: Annotated[
        str | None, typer.Option(help="Do these cells alone, named like their records.", rich_help_panel=_WHERE)
    ] = None,
    launcher: Annotated[
        str, typer.Option(metavar="local|slurm|kubernetes|...", help="Who does the work.", rich_help_panel=_WHERE)
    ] = "local",
    resources: Annotated[
        Path | None,
        typer.Option(help="YAML file: what a cell gets on a cluster (docs/cluster.md).", rich_help_panel=_WHERE),
    ] = None,
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Compute nothing: the table of what is there.", rich_help_panel=_WHERE)
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=MOST_MINUTES,
            help="With --table-only: wait until others have done all, or nobody was at it for so many minutes.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, what is cached, and for how long.")
    ] = False,
    flops: Annotated[
        float | None,
        typer.Option(
            min=1.0, help="With --dry-run: FLOP/s a device sustains, for example 4e14, to print the hours it takes."
        ),
    ] = None,
    timed: Annotated[
        bool,
        typer.Option(
            "--time",
            help="At the end measure the time of every method at batch 1, 8 and 32, as `adaptive-bench time --run` "
            "does, for the table and an entry made of it.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Print scores with intervals at all levels, and what was saved there.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Build the page at the end and show it.")] = False,
    debug: Debug = False,
) -> None:
    """Compare methods at the same saved compute.

    Without options: gateskip and mod beside the dense model, random skipping and static depth, on the embedded nano
    model and two of its tasks. Finished work is found again: the same command continues after a stop, and computes
    nothing when all of it is done.
    """
    from adaptive_bench.cli.execution import execute, print_plan
    from adaptive_bench.config import check_device
    from adaptive_bench.config_file import DEFAULT_PRESET, preset_naming
    from adaptive_bench.evaluation.stock_tasks import check_task_name
    from adaptive_bench.spec import MethodSpec

    if no_controls and "methods" not in ctx.obj.values:
        raise UsageError(
            "--no-controls is for --methods, to which controls are added; what a config lists is taken as it stands. "
            "Leave it out, or give --methods."
        )
    if flops is not None and not dry_run:
        raise UsageError("--flops is for --dry-run, which prints the hours a run takes. Add --dry-run or leave it out.")
    if wait is not None and not table_only:
        raise UsageError("--wait is for --table-only, which computes nothing. Add --table-only or leave it out.")
    if timed and (table_only or launcher != "local" or shard is not None or cell is not None):
        raise UsageError(
            "--time measures here, at the end of a whole run: it does not go with --table-only, --shard, --cell or a "
            "launcher of a cluster. Leave it out, and give `adaptive-bench time --run RUN` on the machine that counts."
        )
    if resources is not None and launcher == "local":
        raise UsageError(
            f"--resources is for a launcher that asks a cluster for them, got {str(resources)!r} with --launcher "
            f"local. Add --launcher slurm or kubernetes, or leave it out."
        )
    if resources is not None and not resources.is_file():
        raise EnvironmentProblem(
            f"--resources is a YAML file (docs/cluster.md shows one), but there is none at {str(resources)!r}. Correct "
            f"the path."
        )
    if resources is not None:
        read_mapping(resources)  # a dry run asks for nothing else of it
    if plugin:
        load_libraries()
        registry.load_plugins(plugin)
    overrides: Overrides = ctx.obj
    if any_model:
        overrides = overrides.with_value(["for_models"], None, "--any-model")
    model = overrides.values.get("model")
    preset = config or preset_naming(model)
    if preset is None:  # the size of a model is known to heavy libraries
        load_libraries()
        from adaptive_bench.runs.checks.preflight import raise_all_missing
        from adaptive_bench.runs.checks.recipes import preset_by_size

        try:
            preset = preset_by_size(str(model))
        except OutOfReach as error:  # which recipe it would get is not known, but what else is missing is
            raise_all_missing(overrides.load(DEFAULT_PRESET), error)
    only_reads = (table_only or overwrite is Overwriting.only_cache) and wait is None
    run_config = overrides.load(preset, reads_data=not only_reads)
    with naming_plugins(Path(preset).parent):  # of the `config.yaml` of a run
        for name in () if only_reads else (*run_config.tasks, *(run_config.train_on or ())):
            check_task_name(name)  # before seconds go by
        for text in () if only_reads else run_config.methods:
            registry.check_name("methods", MethodSpec.parse(text).name)
    check_device(run_config.device)
    registry.check_name("launchers", launcher)
    load_libraries()
    if tuned is not None:
        from adaptive_bench.tuning import find_result
        from adaptive_bench.tuning import tuned as with_best

        run_config = with_best(run_config, find_result(tuned, run_config.out))
    if quick:
        from adaptive_bench.cli.quick import quick as smaller

        run_config = smaller(run_config, overrides.values)
    if "methods" in overrides.values and not no_controls:
        run_config = _controlled(run_config, dry_run)
    if (quick or config is None) and launcher == "local" and run_config.model not in registry.names("models"):
        run_config = _fitted(run_config, overrides, quick, dry_run)
    if timed and run_config.evaluation.quantize != "none":
        raise UsageError(
            f"--time times models as they were trained, got it with --quantize {run_config.evaluation.quantize}. Leave "
            f"one of the two out."
        )
    from adaptive_bench.runs import Shard

    part = Shard.parse(shard, cell)
    if dry_run:
        print_plan(run_config, flops, part)
    else:
        how = {
            "jobs": jobs,
            "launcher": launcher,
            "resources": resources,
            "table_only": table_only,
            "overwrite": overwrite,
            "wait_s": None if wait is None else 60 * wait,
        }
        execute(run_config, how | {"shard": part}, wide=wide, open_page=open_page, debug=debug, timed=timed)


def _fitted(config: RunConfig, overrides: Overrides, quick: bool, dry_run: bool) -> RunConfig:
    """The config made smaller to what this machine does in the time that a user has, which is said."""
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.cost.fitted import NIGHT, QUICK, fitted

    with open_reporter() as reporter:
        config, text = fitted(config, overrides.values, QUICK if quick else NIGHT, reporter)
    if text:
        text += "" if quick else f" `--config {config.preset}` takes the recipe as it is."
        typer.echo(paragraph(text), err=not dry_run)
    return config


def _controlled(config: RunConfig, dry_run: bool) -> RunConfig:
    """The config with the controls that its methods lack, which is said."""
    from adaptive_bench.cli.controls import with_controls

    if added := with_controls(config.methods, config.train.steps)[len(config.methods) :]:
        text = f"Compared with {' and '.join(added)} as well, the controls of --methods; --no-controls leaves them out."
        typer.echo(paragraph(text), err=not dry_run)
    return config.with_controls(added)
