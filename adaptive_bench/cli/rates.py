"""`adaptive-bench rates`: choose the learning rate of added parameters by the rule all methods share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from adaptive_bench import output
from adaptive_bench.cli.config_options import ConfigCommand, Overrides
from adaptive_bench.cli.report import report
from adaptive_bench.cli.values import numbers_value
from adaptive_bench.validation import LARGEST_RATE


class RatesCommand(ConfigCommand):
    """See the command's own options for its methods."""

    keys = ("seeds", "out")


def rates(
    ctx: typer.Context,
    methods: Annotated[str, typer.Option(help="Method specs that add parameters, for example `gateskip,mod`.")],
    config: Annotated[
        str | None, typer.Option(help="A preset or a YAML file: tasks, model, recipe. Default: nano.")
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(
            help="Rates to try, these alone. Default: 1, 5 and 25 times the rate of the backbone; where the first or "
            "last is the best of a method, the next one beyond it, twice at most."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", parser=output.file, help="JSON file for the trials and the choice; - for standard output."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes to use.")] = None,
) -> None:
    """Train each method at every rate of one grid and compare them on validation documents.

    One seed, the config's first, unless `--seeds` says otherwise: scores of several are means over them, and three tell
    rates apart better than one. Prints what belongs into a config under `train: method_learning_rates:`.
    """
    if write is not None:
        output.check(write)  # before what would be lost is measured
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.rates import choose_rates

    overrides: Overrides = ctx.obj
    with_methods = overrides.with_value(["methods"], methods, "--methods")
    run_config = with_methods.load_for_one_seed(config or RatesCommand.preset)
    rule = f"learning rates above 0 and up to {LARGEST_RATE:g} such as 0.002,0.01"
    tried = (
        None
        if grid is None
        else tuple(sorted(numbers_value(grid, "--grid", float, rule, lambda rate: 0 < rate <= LARGEST_RATE)))
    )
    with open_reporter() as reporter:
        choice = choose_rates(run_config, tried, reporter, jobs)
    from tabulate import tabulate

    body = [
        [trial.method, f"{trial.rate:g}{' (beyond the grid)' * trial.extension}", *trial.scores.values(), trial.score]
        for trial in choice.trials
    ]
    header = ["method", "rate", *run_config.tasks, "mean"]
    table = tabulate(body, header, tablefmt="simple", floatfmt=".3f", disable_numparse=[1])
    text = yaml.safe_dump({"train": {"method_learning_rates": choice.chosen}}, sort_keys=False).rstrip()
    said = "\n".join(choice.said(len(run_config.seeds)))
    report(f"{table}\n\n{said}\n\n{text}", write, lambda: choice.to_json(run_config), choice.failures)
