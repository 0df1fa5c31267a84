"""`adaptive-bench run`: train, sweep, match and print the table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_bench import fork_server, registry
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.quiet import quiet
from adaptive_bench.cli.strict import StrictCommand
from adaptive_bench.cli.values import levels_value, seeds_value
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError

_KEYS = [
    "methods",
    "tasks",
    "model",
    "seeds",
    "levels",
    "match_on",
    "match_phase",
    "timing",
    "train_on",
    "chat_template",
    "data_dir",
    "out",
    "device",
    "track",
    "cell_timeout",
    "stall_warning",
]
# What a config key is called on the command line.
FLAGS = {key: f"--{key.replace('_', '-')}" for key in _KEYS} | {
    "train.steps": "--train-steps",
    "evaluation.limit": "--limit",
    "evaluation.num_fewshot": "--num-fewshot",
}
_WHAT, _HOW, _WHERE = "What is compared", "How", "Where"


class Overwriting(StrEnum):
    """Names of `adaptive_bench.runs.workers.overwrite`, which is too heavy to be imported for `--help`."""

    only_missing = "only-missing"
    always = "always"
    never = "never"
    only_cache = "only-cache"


def run(
    methods: Annotated[
        str | None,
        typer.Option(
            help="Method specs, for example `gateskip,mod` or `gateskip[shape=scalar]@paper`.", rich_help_panel=_WHAT
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="Tasks of `list tasks`, or any lm-eval task.", rich_help_panel=_WHAT)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model of `list models`, a folder in Hugging Face layout, or a hub id.", rich_help_panel=_WHAT
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(help="A preset of `list configs` or a YAML file; flags override it.", rich_help_panel=_WHAT),
    ] = None,
    any_model: Annotated[
        bool, typer.Option("--any-model", help="Use a preset on a model it is not meant for.", rich_help_panel=_WHAT)
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="`3` for seeds 1 to 3, or a list: `1,2,5`.", rich_help_panel=_HOW)
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(help="Saved shares to compare at, for example `0,0.1,0.2`.", rich_help_panel=_HOW),
    ] = None,
    match_on: Annotated[
        str | None,
        typer.Option(
            metavar="net|core|tokens|claimed|time",
            help="What the levels are shares of; `time` after `adaptive-bench time`.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    match_phase: Annotated[
        str | None,
        typer.Option(
            metavar="all|prefill|decode", help="The tokens whose saving the levels are.", rich_help_panel=_HOW
        ),
    ] = None,
    timing: Annotated[
        str | None,
        typer.Option(help="Of several timed settings those whose name contains this.", rich_help_panel=_HOW),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Test documents per task.", rich_help_panel=_HOW)] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(help="Worked examples before each question.", rich_help_panel=_HOW)
    ] = None,
    train_steps: Annotated[
        int | None, typer.Option(help="Optimizer steps per method; 0: as it is.", rich_help_panel=_HOW)
    ] = None,
    train_on: Annotated[
        str | None,
        typer.Option(help="Tasks to train on; otherwise every selected task with training text.", rich_help_panel=_HOW),
    ] = None,
    chat_template: Annotated[
        bool | None,
        typer.Option(
            "--chat-template/--no-chat-template",
            help="Put training text and prompts into the model's own chat template.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    tuned: Annotated[
        str | None,
        typer.Option(help="A study of `adaptive-bench tune`: the best of each method it tuned.", rich_help_panel=_HOW),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with local data files (or set ADAPTIVE_BENCH_DATA).", rich_help_panel=_WHERE),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for records and tables.", rich_help_panel=_WHERE)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda:0, ...", rich_help_panel=_WHERE)] = None,
    track: Annotated[
        str | None,
        typer.Option(
            metavar="tensorboard|trackio|wandb", help="Also send training curves there.", rich_help_panel=_WHERE
        ),
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
    cell_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="End a training, or one method's evaluations on it, that takes longer; the rest goes on.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    stall_warning: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES", help="Say so when work gets no further for so long; 0: never.", rich_help_panel=_WHERE
        ),
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
    no_recheck: Annotated[
        bool,
        typer.Option("--no-recheck", help="Use records of other code without repeating a part.", rich_help_panel=_HOW),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0.0,
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
    wide: Annotated[
        bool, typer.Option("--wide", help="Print scores with intervals at all levels, and what was saved there.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Build the page at the end and show it.")] = False,
    debug: Debug = False,
) -> None:
    """Compare methods at the same saved compute.

    Without options: dense, random_skip, gateskip and mod on the embedded nano model and two of its tasks. Finished
    work is found again: the same command continues after a stop, and computes nothing when all of it is done.
    """
    from adaptive_bench.cli.execution import execute, print_plan
    from adaptive_bench.config import check_device, load_config, preset_naming
    from adaptive_bench.evaluation.stock_tasks import check_task_name
    from adaptive_bench.spec import MethodSpec

    if flops is not None and not dry_run:
        raise UsageError("--flops is for --dry-run, which prints the hours a run takes. Add --dry-run or leave it out.")
    if wait is not None and not table_only:
        raise UsageError("--wait is for --table-only, which computes nothing. Add --table-only or leave it out.")
    if not debug:
        quiet()
    if plugin:
        fork_server.start()  # before they are loaded, and while the libraries are
        load_libraries()
        registry.load_plugins(plugin)
    run_config = load_config(
        config or preset_naming(model) or _preset_by_size(str(model)),
        _given(
            methods=methods,
            tasks=tasks,
            model=model,
            seeds=seeds_value(seeds),
            levels=levels_value(levels),
            match_on=match_on,
            match_phase=match_phase,
            timing=timing,
            train_on=train_on,
            chat_template=chat_template,
            data_dir=data_dir,
            out=out,
            device=device,
            track=track,
            cell_timeout=cell_timeout,
            stall_warning=stall_warning,
            train=_given(steps=train_steps),
            evaluation=_given(limit=limit, num_fewshot=num_fewshot),
        )
        | ({"for_models": None} if any_model else {}),
        flags=FLAGS,
    )
    for name in (*run_config.tasks, *(run_config.train_on or ())):
        check_task_name(name)  # before seconds go by
    for text in run_config.methods:
        registry.check_name("methods", MethodSpec.parse(text).name)
    check_device(run_config.device)
    load_libraries()
    if tuned is not None:
        from adaptive_bench.tuning import find_result
        from adaptive_bench.tuning import tuned as with_best

        run_config = with_best(run_config, find_result(tuned, run_config.out))
    if dry_run:
        print_plan(run_config, flops)
    else:
        from adaptive_bench.runs import Share

        how = {
            "jobs": jobs,
            "launcher": launcher,
            "resources": resources,
            "table_only": table_only,
            "overwrite": overwrite,
            "recheck": not no_recheck,
            "wait_s": None if wait is None else 60 * wait,
        }
        execute(run_config, how | {"share": Share.parse(shard, cell)}, wide=wide, open_page=open_page, debug=debug)


class RunCommand(StrictCommand):
    """Shows the default preset's values as the defaults of the options that override them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        from adaptive_bench.config import DEFAULT_PRESET, load_config

        values = load_config(DEFAULT_PRESET).model_dump(mode="json")
        for param in self.params:
            place = next((key for key, flag in FLAGS.items() if flag in param.opts), None)
            value: Any = values
            for part in place.split(".") if place else ():
                value = value[part]
            if place and value is not None:
                text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
                setattr(param, "show_default", text)  # noqa: B010 - an option has it, an argument has not
        super().format_help(ctx, formatter)


def _preset_by_size(model: str) -> str:
    load_libraries()
    from adaptive_bench.runs.checks.recipes import preset_by_size

    return preset_by_size(model)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != {}}
