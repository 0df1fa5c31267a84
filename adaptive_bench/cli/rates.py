"""`adaptive-bench rates`: choose the learning rate of added parameters by the rule all methods share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml
from tabulate import tabulate

from adaptive_bench import output
from adaptive_bench.cli.failures import Debug
from adaptive_bench.cli.quiet import quiet
from adaptive_bench.cli.values import seeds_value, shares_value
from adaptive_bench.errors import Interrupted


def rates(
    methods: Annotated[str, typer.Option(help="Method specs that add parameters, for example `gateskip,mod`.")],
    config: Annotated[
        str | None, typer.Option(help="A preset or a YAML file: tasks, model, recipe. Default: nano.")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(help="Rates to try; default: 1, 5 and 25 times the rate of the backbone.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="`3` for seeds 1 to 3, or a list: `1,2,5`.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the records; a run with the choice finds them.")] = None,
    write: Annotated[
        Path | None,
        typer.Option(parser=output.file, help="JSON file for the trials and the choice; - for standard output."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes to use.")] = None,
    debug: Debug = False,
) -> None:
    """Train each method at every rate of one grid and compare them on validation documents.

    Prints what belongs into a config under `train: method_learning_rates:`.
    """
    from adaptive_bench.config import DEFAULT_PRESET, load_config
    from adaptive_bench.progress import open_reporter
    from adaptive_bench.runs.rates import choose_rates

    given = {"methods": methods, "seeds": seeds_value(seeds), "out": out}
    run_config = load_config(
        config or DEFAULT_PRESET, {key: value for key, value in given.items() if value is not None}
    )
    if not debug:
        quiet()
    tried = shares_value(grid, "--grid") if grid else None
    try:
        with open_reporter() as reporter:
            choice = choose_rates(run_config, tried, reporter, jobs)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. Finished trials are kept; re-run the command to continue.") from None
    body = [[trial.method, f"{trial.rate:g}", *trial.scores.values(), trial.score] for trial in choice.trials]
    header = ["method", "rate", *run_config.tasks, "mean"]
    table = tabulate(body, header, tablefmt="simple", floatfmt=".3f", disable_numparse=[1])
    text = yaml.safe_dump({"train": {"method_learning_rates": choice.chosen}}, sort_keys=False).rstrip()
    typer.echo(f"\n{table}\n\n{text}", err=output.is_stdout(write))
    if write is not None:
        output.write_json(write, choice.to_json(run_config))
    for failure in choice.failures:
        typer.echo(f"\nFailed: {failure}", err=True)
    if choice.failures:
        raise typer.Exit(1)
