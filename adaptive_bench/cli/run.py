"""`adaptive-bench run` and `retry`: train, sweep, match, and print the table, or the plan of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.capabilities import FILE_NAME, stored_matrix
from adaptive_bench.cli import options
from adaptive_bench.cli.config_options import PANELS, Overrides, takes_config
from adaptive_bench.cli.terminal_text import fitting, load_libraries, paragraph, pasteable
from adaptive_bench.config import QUICK, RunConfig, load_config, preset_naming
from adaptive_bench.errors import Interrupted, UsageError
from adaptive_bench.live_display import Display
from adaptive_bench.progress import let_go, say
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.store.runs import run_command, run_name
from adaptive_bench.tables.comparability import QUICK_NOTE
from adaptive_bench.validation import MOST_MINUTES, read_mapping

if TYPE_CHECKING:
    from adaptive_bench.jobs.job import Failure
    from adaptive_bench.runs import RunOutcome, Shard

_what, _how, _where = (partial(typer.Option, rich_help_panel=panel) for panel in PANELS)
_ALONE = ("dense", "static_depth", "base")  # if these are the only methods, no control is added
# Most steps, documents and calibration examples of a quick run.
_QUICK_STEPS, _QUICK_LIMIT, _QUICK_EXAMPLES = 20, 16, 16


@takes_config()
def run(
    overrides: Overrides,
    config: Annotated[
        str | None,
        _what(
            help="A preset of `list configs` or a YAML file; flags override it.",
            autocompletion=options.names_of("configs"),
        ),
    ] = None,
    any_model: Annotated[bool, _what("--any-model", help="Use a preset on a model it is not meant for.")] = False,
    no_controls: Annotated[
        bool,
        _what("--no-controls", help="Compare the --methods alone, without the dense model and trained static depth."),
    ] = False,
    quick: Annotated[
        bool,
        _how(
            "--quick",
            help="A first look in minutes: fewer steps, documents and calibration examples. Not to be quoted.",
        ),
    ] = False,
    tuned: Annotated[
        str | None, _how(help="Use the best settings that a study of `adaptive-bench tune` found for each method.")
    ] = None,
    plugin: Annotated[
        list[Path] | None, _where(help="Python file that registers methods, tasks, families, ...; repeatable.")
    ] = None,
    jobs: Annotated[int | None, _where(min=1, help="Processes at once; default: as many as suit the machine.")] = None,
    shard: Annotated[str | None, _where(help="Do a part: `2/8` is the second of eight, on any machine.")] = None,
    cell: Annotated[str | None, _where(help="Do these cells alone, named like their records.")] = None,
    launcher: Annotated[str, _where(metavar="local|slurm|kubernetes|...", help="Who does the work.")] = "local",
    resources: Annotated[
        Path | None, _where(help="YAML file: what a cell gets on a cluster (docs/cluster.md).")
    ] = None,
    table_only: Annotated[bool, _where("--table-only", help="Only make the table of what is on disk.")] = False,
    wait: Annotated[
        float | None,
        _where(
            min=0.0,
            max=MOST_MINUTES,
            help="With --table-only: wait until others have done all work, or none worked for this many minutes.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, what is cached, and for how long.")
    ] = False,
    timed: Annotated[
        bool,
        _how(
            "--time",
            help="At the end measure the time of every method at batch 1, 8 and 32, as `adaptive-bench time --run` "
            "does, for the table and an entry made of it.",
        ),
    ] = False,
    wide: Annotated[
        bool, typer.Option("--all", help="Print all levels and rows, with the scores of every task and what was saved.")
    ] = False,
) -> None:
    """Compare methods at the same saved compute.

    Without options it compares gateskip and mod with the dense model, random skipping and static depth, on the embedded
    nano model and two of its tasks. Finished work is found again: the same command continues after a stop, and computes
    nothing once everything is done.
    """
    from adaptive_bench.evaluation.lookup import check_task_name

    options.check_goes_with("--no-controls", no_controls, "--methods", "methods" in overrides.values)
    options.check_goes_with("--wait", wait is not None, "--table-only", table_only)
    options.check_goes_with("--resources", resources is not None, "--launcher slurm or kubernetes", launcher != "local")
    if timed and (table_only or launcher != "local" or shard is not None or cell is not None):
        raise UsageError(
            "--time measures here, at the end of a whole run: it does not go with --table-only, --shard, --cell or a "
            "launcher of a cluster. Leave it out, and give `adaptive-bench time --run RUN` on the machine that counts."
        )
    if resources is not None:
        read_mapping(resources)  # so that a dry run, which does not use it, finds errors too
    # The config of a run lies beside the list of plugin files that the run was made with.
    if plugins := plugin or (options.plugins_there(Path(config).parent) if config else None):
        load_libraries(plugins)
    if any_model:
        overrides = overrides.with_value(["for_models"], None, "--any-model")
    model = overrides.values.get("model")
    preset = config or preset_naming(model)
    if preset is None:  # the model's size decides, and finding it needs heavy libraries
        load_libraries()
        from adaptive_bench.runs.model_checks import preset_by_size

        preset = preset_by_size(str(model))
    # Such a command needs neither data nor the tasks and methods themselves; whatever is on disk is shown.
    only_reads = table_only and wait is None
    run_config = load_config(preset, overrides.values, flags=overrides.flags, reads_data=not only_reads)
    for name in () if only_reads else (*run_config.tasks, *(run_config.train_on or ())):
        check_task_name(name)  # before the libraries load, which takes seconds
    for text in () if only_reads else run_config.methods:
        registry.check_name("methods", MethodSpec.parse(text).name)
    registry.check_name("launchers", launcher)
    load_libraries()
    if tuned is not None:
        from adaptive_bench.tuning import find_result
        from adaptive_bench.tuning import tuned as with_best

        run_config = with_best(run_config, find_result(tuned, run_config.out))
    if quick:
        run_config = quickened(run_config, overrides.values)
    if "methods" in overrides.values and not no_controls:  # a config names its own controls
        added = missing_controls(run_config.methods, run_config.train.steps)
        run_config = run_config.model_copy(update={"methods": (*run_config.methods, *added)})
        if added:
            text = f"Compared with {' and '.join(added)} as well: controls, which --no-controls leaves out."
            typer.echo(paragraph(text), err=not dry_run)
    # A registered model such as nano keeps its recipe, and so does a named config without --quick.
    if (quick or config is None) and launcher == "local" and run_config.model not in registry.names("models"):
        run_config = _fitted(run_config, overrides, quick, dry_run)
    if timed and run_config.evaluation.quantize != "none":
        raise UsageError(
            f"--time times models as they were trained, got --quantize {run_config.evaluation.quantize}. Leave one out."
        )
    from adaptive_bench.runs import Shard

    part = Shard.parse(shard, cell)
    if dry_run:
        print_plan(run_config, part)
        return
    how: dict[str, Any] = {"jobs": jobs, "launcher": launcher, "resources": resources}
    how |= {"table_only": table_only, "shard": part, "wait_s": None if wait is None else 60 * wait}
    execute(run_config, how, wide=wide, timed=timed)


def missing_controls(methods: Sequence[str], steps: int) -> tuple[str, ...]:
    """The controls that `run --methods` adds for comparison: the dense model, and static depth.

    Static depth is the trained variant if the run trains at all. A control that is named in any variant is not added.
    """
    names = {MethodSpec.parse(text).name for text in methods}
    controls = {"dense": "dense", "static_depth": "static_depth[trained=true]" if steps else "static_depth"}
    return tuple(spec for name, spec in controls.items() if name not in names and not names <= set(_ALONE))


def quickened(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """The config of a quick run: fewer steps, documents and calibration examples, and a preset name that marks it.

    Values that are smaller already stay, and so do values that the command line has given.
    """
    named = given.get("train", {})
    steps = config.train.steps if "steps" in named else min(_QUICK_STEPS, config.train.steps)
    # At most a quarter of the steps warms up, also where the command line gave the steps.
    train = {"steps": steps, "warmup_steps": min(steps // 4, config.train.warmup_steps)}
    measuring = {
        # Without a limit all documents are asked.
        "limit": min(_QUICK_LIMIT, config.evaluation.limit or _QUICK_LIMIT),
        "calibration_examples": min(_QUICK_EXAMPLES, config.evaluation.calibration_examples),
    }
    values = config.model_dump(mode="json")
    values["train"] |= {key: value for key, value in train.items() if key not in named}
    values["evaluation"] |= {key: value for key, value in measuring.items() if key not in given.get("evaluation", {})}
    return RunConfig.model_validate(values | {"preset": f"{config.preset or 'config'}{QUICK}"})


def _fitted(config: RunConfig, overrides: Overrides, quick: bool, dry_run: bool) -> RunConfig:
    """The config made smaller to what this machine does in time, with a note to the user."""
    from adaptive_bench.runs.estimate import NIGHT, QUICK, fitted

    with Display() as reporter:
        config, text = fitted(config, overrides.values, QUICK if quick else NIGHT, reporter)
    if text:
        text += "" if quick else f" `--config {config.preset}` takes the recipe as it is."
        typer.echo(paragraph(text), err=not dry_run)
    return config


def retry(
    run: options.Run,
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Do what failed or was never finished in a run; what is done stays, and nothing else is computed.

    Plugin files are loaded from where they were; if they have moved, name them with --plugin.
    """
    folder = options.open_run(run, out, plugin)
    load_libraries()
    from adaptive_bench.runs.trained import config_of

    execute(config_of(folder))


def print_plan(config: RunConfig, part: Shard) -> None:
    """Check everything a run needs, then print the model, the recipe, the cells of the whole run and what they will
    take, and those that this command would do.
    """
    from adaptive_bench.runs import about, describe, preflight

    with Display() as reporter:
        found = preflight(config, reporter, measures=not part.is_whole)  # names of cells depend on the measured sites
        cells = () if part.is_whole else part.of(found.plan)
    typer.echo("\n".join(about(config, found)))
    typer.echo("\n" + fitting(describe(found.plan, found.estimator)))
    if cells:
        names = ", ".join(cell.folder.name for cell in cells)
        typer.echo("\n" + paragraph(f"Of these, this command would do the cells {names}, with their evaluations."))
    for note in found.notes:
        typer.echo("\n" + paragraph(f"Note: {note}"))


def execute(
    config: RunConfig, how: Mapping[str, Any] | None = None, *, wide: bool = False, timed: bool = False
) -> None:
    """Run, then print the table, the notes about it, and where everything is.

    Args:
        how: Further arguments of `adaptive_bench.runs.run`.
        wide: Whether to print all levels and rows, with the scores of every task and what was saved there.
        timed: Whether to time the methods afterwards, and to make the table with their times.
    """
    from adaptive_bench.runs import run

    try:
        with Display() as reporter:
            outcome = run(config, reporter, **how or {})
            if timed and outcome.rows and not outcome.failures:
                from adaptive_bench.runs.timing import TimingRequest, time_specs

                specs = tuple(parse_specs(",".join(config.methods)))
                asked = TimingRequest(specs, config.model, device=config.device, out=config.out, run=config)
                time_specs(asked, reporter)
                outcome = run(config, reporter, table_only=True)  # the same table, now with times
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped. What was finished is kept in {str(config.out)!r}; re-run the command to continue."
        ) from None
    if not outcome.is_main_process:  # under torchrun one process speaks for all
        return
    try:
        _print_outcome(outcome, config, wide=wide)
    except BrokenPipeError:  # standard output was closed; everything is on disk
        let_go(sys.stdout)
    if outcome.failures:
        _print_failures(outcome.failures)
        raise typer.Exit(outcome.exit_code)


def _print_outcome(outcome: RunOutcome, config: RunConfig, *, wide: bool) -> None:
    if outcome.elsewhere:
        typer.echo("\n" + paragraph(outcome.elsewhere))
    rows = bool(outcome.rows)
    if rows and config.is_quick:
        typer.echo(f"\n{QUICK_NOTE}")
    if rows:
        typer.echo("\n" + registry.get("leaderboards", "terminal")([outcome.folder / "table.json"], wide=wide))
    for warning in (*outcome.warnings, *_unchecked(config)):
        typer.echo("\n" + paragraph(f"Note: {warning}"))
    name = shlex.quote(run_name(outcome.folder))
    commands = {}
    if rows:
        commands["What each model wrote"] = f"adaptive-bench samples {name}"
        commands["The page"] = f"adaptive-bench leaderboard build {name} --open"
    elif not outcome.elsewhere:  # it would do here what was handed to others
        commands["The same again"] = run_command(outcome.folder, registry.plugin_files())
    for what, command in commands.items():
        typer.echo(f"\n{what}:\n  {pasteable(command)}")
    typer.echo(f"\n{'Folder of the run:' if outcome.elsewhere else 'Written to'} {outcome.folder}")


def _unchecked(config: RunConfig) -> list[str]:
    """Warnings about plugins' methods that were never checked, or whose decisions were found to use later text."""
    said = list[str]()
    for spec in map(MethodSpec.parse, config.methods):
        # With --table-only a run may have methods that are not installed here.
        if spec.name not in registry.names("methods") or not registry.is_foreign("methods", spec.name):
            continue
        matrix = stored_matrix(spec.name)
        if not matrix:
            said.append(
                f"The method {spec.name!r} ({registry.origin('methods', spec.name)}) was never checked: its scores may "
                f"rest on later text. `adaptive-bench check {spec.name} --plugin FILE --capabilities {FILE_NAME}` in "
                f"the folder of its file checks it."
            )
        causality = matrix.get(str(spec), {}).get("causality", "-")
        if spec.semantics == "bench" and causality not in ("-", "C0"):
            said.append(
                f"`adaptive-bench check` found that the decisions of {str(spec)!r} depend on more than earlier text "
                f"(causality {causality}): its scores are not those of a model that writes."
            )
    return list(dict.fromkeys(said))


def _print_failures(failures: Sequence[Failure]) -> None:
    """Print every cause of failure once, with the work that it affected."""
    by_cause: dict[str, list[Failure]] = {}
    for failure in failures:
        by_cause.setdefault(f"{failure.kind}: {failure.reason}", []).append(failure)
    for cause, failed in by_cause.items():
        log = next((failure.log for failure in failed if failure.log), None)  # they share a cause, so one log is enough
        works = ", ".join(failure.work for failure in failed)
        say("\n" + paragraph(f"Failed: {works}: {cause}{f' Log: {log}' if log else ''}"), sys.stderr)
        if options.debugging():
            say("\n".join(dict.fromkeys(failure.trace for failure in failed)), sys.stderr)
    if any(failure.was_tried for failure in failures):
        say("\nThe same command tries again what failed and keeps the rest.", sys.stderr)
