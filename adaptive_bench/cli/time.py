"""`adaptive-bench time`: times methods over their dials beside the plain model, and measures throughput and memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import load_libraries, percent, plain_table
from adaptive_bench.errors import UsageError

_METHOD_WIDTH = 18  # longer specs wrap, so that the table fits a terminal
DEFAULT_METHODS = "dense,random_skip,gateskip,mod"


def time(
    methods: Annotated[
        str | None,
        typer.Option(
            autocompletion=options.names_of("methods"),
            help=f"Method specs; default: those of --run, or `{DEFAULT_METHODS}`.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="As for `run`; default: that of --run, or nano.")] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=options.run_names,
            help="Name or folder of a finished run, or `last`: time its checkpoints on its calibration text.",
        ),
    ] = None,
    batch: Annotated[str, typer.Option(help="Batch sizes in rows; each is a setting of its own.")] = "1,8,32",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 128,
    new: Annotated[int, typer.Option(min=1, help="New tokens of each row.")] = 128,
    savings: Annotated[str, typer.Option(help="Shares of saved tokens to set the dials for.")] = "0,0.25,0.5,0.75",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of prefill; decoding has one per new token.")] = 7,
    threads: options.Threads = None,
    precision: options.Precision = "fp32",
    device: options.Device = "auto",
    out: options.Out = options.DEFAULT_OUT,
    again: Annotated[bool, typer.Option("--again", help="Measure again what is on disk.")] = False,
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
) -> None:
    """Measure how much of a method's saving is felt as time.

    Each method runs in turn with the plain model, over its dial: prefill, then decoding token by token. Without --run
    the methods are untrained and read random tokens, because time depends on which tokens are kept, not on how good the
    weights are. Once a model's methods are timed, `run` shows tables by saved time as well.
    """
    options.check_word("--precision", precision, options.PRECISIONS)
    rule = "shares of saved tokens from 0 up to but not 1 such as 0,0.25,0.5 (0.25 is 25 %)"
    shares = tuple(sorted(options.numbers(savings, "--savings", float, rule, options.is_share)))
    batches = options.numbers(batch, "--batch", int, "whole numbers from 1 such as 1,8,32", options.is_count)
    load_libraries()
    registry.load_plugins(plugin)
    import torch

    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.timing import TimingRequest, time_specs
    from adaptive_bench.runs.trained import config_of
    from adaptive_bench.spec import parse_specs

    config = None if run is None else config_of(options.find_run(run, out))
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


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The records as text of at most 80 columns: one table for each setting, in which `x` is plain time over ours."""
    from adaptive_bench.store.timings import label

    header = ["method", "tok %", "net %", "prefill", "x", "decode", "x", "tok/s", "time %"]
    parts = []
    for setting, group in groupby(records, key=lambda record: label(record["setting"])):
        of_setting = list(group)
        plain = of_setting[0]["plain"]
        # The header is an ordinary row here: as a header it would get a margin, which 80 columns have no room for.
        rows = [
            header,
            ["plain model", "", "", _ms(plain["prefill_s"]), "", _ms(plain["decode_s"]), "", _speed(plain), ""],
        ]
        for record in of_setting:
            for number, point in enumerate(record["points"]):
                saved = [percent(point["saved"][axis]) for axis in ("tokens", "net")]
                row = ["" if number else record["method"], *saved]
                for phase in ("prefill", "decode"):
                    row += [_ms(point[f"{phase}_s"]), f"{point[f'{phase}_speedup']['median']:.2f}"]
                rows.append([*row, _speed(point), percent(point["saved_time"]["total"])])
        widths = [_METHOD_WIDTH, *(None for _ in header[1:])]
        align = ("left", *("right" for _ in header[1:]))
        text = plain_table(rows, (), tablefmt="plain", colalign=align, maxcolwidths=widths)
        parts.append(f"{setting}\n\n{text}")
    kinds = ", ".join(sorted({f"{record['weights'].split()[0]} weights" for record in records}))
    parts.append(
        "tok, net: tokens and net FLOPs saved in the timed calls. Medians; prefill in ms\n"
        "a batch, decode in ms a step; x: plain time over ours. tok/s: new tokens of the\n"
        "batch a second, prompt included. time: saved over prompt and new tokens.\n"
        f"plain model: Hugging Face as it is. Measured with {kinds}."
    )
    return "\n\n".join(parts)


def _ms(spread: Mapping[str, float]) -> str:
    return f"{1e3 * spread['median']:.1f}"


def _speed(of: Mapping[str, Any]) -> str:
    return f"{of['tokens_per_s']:.0f}"
