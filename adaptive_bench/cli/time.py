"""`adaptive-bench time`: latency, tokens per second and memory of methods over their dials, against the plain model."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.completion import specs as specs_of
from adaptive_bench.cli.named_run import named, run_names
from adaptive_bench.cli.values import is_count, is_share, numbers_value
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError
from adaptive_bench.validation import MOST_THREADS

_METHOD_WIDTH = 18  # longer specs wrap, so that the table fits a terminal
DEFAULT_METHODS = "dense,random_skip,gateskip,mod"


def time(
    methods: Annotated[
        str | None,
        typer.Option(autocompletion=specs_of, help=f"Method specs; default: those of --run, or `{DEFAULT_METHODS}`."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="As for `run`; default: that of --run, or nano.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            parser=named,
            autocompletion=run_names,
            help="Name or folder of a finished run, or `last`: time its checkpoints on its calibration text.",
        ),
    ] = None,
    batch: Annotated[str, typer.Option(help="Rows of a batch; each is a setting of its own.")] = "1,8,32",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 128,
    new: Annotated[int, typer.Option(min=1, help="New tokens of each row.")] = 128,
    savings: Annotated[str, typer.Option(help="Shares of saved tokens to set the dials for.")] = "0,0.25,0.5,0.75",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of prefill; decoding has one per new token.")] = 7,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads; default: as torch decides.")
    ] = None,
    precision: Annotated[str, typer.Option(metavar="fp32|bf16", help="Of the weights.")] = "fp32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for records, `--out` of the run they belong to.")] = Path("runs"),
    again: Annotated[bool, typer.Option("--again", help="Measure anew what is on disk.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON instead.")] = False,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="Python file that registers methods; may be repeated.")
    ] = None,
) -> None:
    """Measure how much of a method's saving is felt as time.

    Each method runs in turn with the plain model, over its dial: prefill, then decoding token by token. Without --run
    the methods are untrained and read random tokens: the time depends on which tokens are kept, not on how good the
    weights are. Once a model's methods are timed, `run` shows tables by saved time as well.
    """
    if precision not in ("fp32", "bf16"):
        raise UsageError(f"--precision is fp32 or bf16, got {precision!r}.")
    rule = "shares of saved tokens from 0 up to but not 1 such as 0,0.25,0.5 (0.25 is 25 %)"
    shares = tuple(sorted(numbers_value(savings, "--savings", float, rule, is_share)))
    batches = numbers_value(batch, "--batch", int, "whole numbers from 1 such as 1,8,32", is_count)
    load_libraries()
    registry.load_plugins(plugin)
    import torch

    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.outcome.trained import config_of
    from adaptive_bench.runs.timing import TimingRequest, time_specs
    from adaptive_bench.spec import parse_specs

    config = None if run is None else config_of(run)
    if config is not None and model not in (None, config.model):
        raise UsageError(f"With --run the model is the run's, {config.model!r}, got --model {model!r}. Leave it out.")
    chosen = methods or (DEFAULT_METHODS if config is None else ",".join(config.methods))
    if threads is not None:
        torch.set_num_threads(threads)
    request = TimingRequest(
        specs=tuple(parse_specs(chosen)),
        model=model or (config.model if config is not None else "nano"),
        batches=batches,
        prompt=prompt,
        new=new,
        savings=shares,
        rounds=rounds,
        precision=precision,
        device=device,
        out=out if config is None else config.out,
        run=config,
        again=again,
    )
    with open_reporter() as reporter:
        records = time_specs(request, reporter)
    typer.echo(json.dumps(records, indent=2) if as_json else table(records))


def table(records: list[dict[str, Any]]) -> str:
    """Text of at most 80 columns, one table for each setting, `x` meaning plain time over ours."""
    from tabulate import tabulate

    from adaptive_bench.store.timings import label

    header = ["method", "tok %", "net %", "prefill", "x", "decode", "x", "tok/s", "time %"]
    parts = []
    for setting, group in groupby(records, key=lambda record: label(record["setting"])):
        rows = [row for number, record in enumerate(group) for row in _rows(record, with_plain=not number)]
        align = ("left", *("right" for _ in header[1:]))
        widths = [_METHOD_WIDTH, *(None for _ in header[1:])]
        # The header is a row like the others: as a header it would get a margin of its own, and 80 columns are few.
        text = tabulate([header, *rows], tablefmt="plain", colalign=align, disable_numparse=True, maxcolwidths=widths)
        parts.append(f"{setting}\n\n{text}")
    kinds = ", ".join(sorted({f"{record['weights'].split()[0]} weights" for record in records}))
    parts.append(
        "tok, net: tokens and net FLOPs saved in the timed calls. Medians; prefill in ms\n"
        "a batch, decode in ms a step; x: plain time over ours. tok/s: new tokens of the\n"
        "batch a second, prompt included. time: saved over prompt and new tokens.\n"
        f"plain model: Hugging Face as it is. Measured with {kinds}."
    )
    return "\n\n".join(parts)


def _rows(record: dict[str, Any], *, with_plain: bool) -> list[list[str]]:
    plain = record["plain"]
    rows = []
    if with_plain:
        latency = [_ms(plain["prefill_s"]), "", _ms(plain["decode_s"]), ""]
        rows.append(["plain model", "", "", *latency, f"{plain['tokens_per_s']:.0f}", ""])
    for number, point in enumerate(record["points"]):
        rows.append(
            [
                "" if number else record["method"],
                f"{100 * point['saved']['tokens']:.1f}",
                f"{100 * point['saved']['net']:.1f}",
                _ms(point["prefill_s"]),
                f"{point['prefill_speedup']['median']:.2f}",
                _ms(point["decode_s"]),
                f"{point['decode_speedup']['median']:.2f}",
                f"{point['tokens_per_s']:.0f}",
                f"{100 * point['saved_time']['total']:.1f}",
            ]
        )
    return rows


def _ms(spread: dict[str, float]) -> str:
    return f"{1e3 * spread['median']:.1f}"
