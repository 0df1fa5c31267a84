"""`adaptive-bench time` and `speculate`: time methods over their dials, and as drafts of self-speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import load_libraries, paragraph, percent, plain_table, wrapped
from adaptive_bench.errors import UsageError
from adaptive_bench.store.atomic import json_text

_WIDTH = 80
_METHOD_WIDTH = 18  # longer specs wrap, so that the table fits a terminal
DEFAULT_METHODS = "dense,random_skip,gateskip,mod"


def time(
    methods: Annotated[
        str | None, options.naming("methods", f"Method specs; default: those of --run, or `{DEFAULT_METHODS}`.")
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
    weights are. Once a model's methods are timed, the tables of `run` have columns of saved time.
    """
    shares = options.shares(savings, "--savings")
    from adaptive_bench.recipe import Counts

    batches = options.parsed(batch, "--batch", Counts)
    load_libraries(plugin)
    import torch

    from adaptive_bench.live_display import Display
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
        out=out if config is None else config.out,  # beside the run's records, where its table looks for times
        run=config,
        again=again,
    )
    with Display() as reporter:
        records = time_specs(request, reporter)
    typer.echo(json_text(records).rstrip() if as_json else timing_text(records))


def timing_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The records as text of at most 80 columns: one table for each setting, in which `x` is plain time over ours."""
    from adaptive_bench.store.records import setting_label

    header = ["method", "tok %", "net %", "prefill", "x", "decode", "x", "tok/s", "time %"]
    parts = []
    # Records come batch by batch, so those of a setting are adjacent, as `groupby` needs.
    for setting, group in groupby(records, key=lambda record: setting_label(record["setting"])):
        of_setting = list(group)
        # Each record timed the plain model again, in turn with its method. The first stands for all in the table's row;
        # every `x` is over the plain time of the same rounds.
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


def speculate(
    model: options.RunOrModel,
    tasks: Annotated[str, typer.Option(help="Tasks whose prompts are continued, as for `run`.")],
    method: Annotated[
        str | None, options.naming("methods", "Method spec: one of a run's; for a plain model, `static_depth`.")
    ] = None,
    savings: Annotated[str, typer.Option(help="Shares of token-branches that drafting skips.")] = "0.25,0.5",
    draft_length: Annotated[int, typer.Option(min=1, help="Most tokens of a draft.")] = 4,
    limit: Annotated[int, typer.Option(min=1, help="Documents of each task, a seeded draw.")] = 8,
    num_fewshot: options.NumFewshot = None,
    max_new_tokens: Annotated[int, typer.Option(min=2, help="Most tokens to write after each prompt.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of timing; each writes all texts in every way.")] = 3,
    threads: options.Threads = None,
    precision: options.Precision = "fp32",
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    out: options.Out = options.DEFAULT_OUT,
    to: options.RecordFile = None,
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
) -> None:
    """Draft with the dial turned, verify with the full model: acceptance, speed and cost beside greedy decoding.

    The text must be that of greedy decoding. If a text differs, the logits of the two candidate tokens say whether
    rounding explains it; if it does not, the command exits with 1. The record has every difference.
    """
    shares = options.shares(savings, "--savings")
    load_libraries(plugin)
    import torch

    from adaptive_bench.live_display import Display
    from adaptive_bench.speculation import Settings, defects, find_drafter, study

    names, root = options.tasks_and_data(tasks, data_dir)
    settings = Settings(
        tasks=tuple(names),
        limit=limit,
        savings=shares,
        drafts=draft_length,
        new=max_new_tokens,
        rounds=rounds,
        num_fewshot=num_fewshot,
        data_dir=root,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    drafter = find_drafter(model, method, out=out, tasks=names, precision=precision, device=device)
    for note in drafter.notes:
        typer.echo(paragraph(f"Note: {note}"), err=True)
    with Display() as reporter:
        record = study(drafter, settings, reporter)
    options.give_record(record, to, as_json, speculation_text)
    if defects(record):
        raise typer.Exit(1)


_HEADER = ("draft saves %", "accepted %", "tok/verif.", "tok/s", "x", "MB/tok", "MFLOP/tok", "equal")


def speculation_text(record: Mapping[str, Any]) -> str:
    """A table, and how many texts differ by how much."""
    parts = [_title(record), _speculation_table(record)]
    if differences := [each for point in record["points"] for each in point["differences"]]:
        ties = sum(each["near_tie"] for each in differences)
        said = (
            f"Texts that differ from greedy decoding: {ties} from a near-tie on, which rounding explains, "
            f"{len(differences) - ties} by a defect. The record (-o FILE) has the place, the two tokens and how far "
            f"apart their logits are."
        )
        parts.append(wrapped(said, _WIDTH))
    parts.append(
        "tok/verif.: tokens from one verification. tok/s: new tokens a second, prompts\n"
        "included; medians. x: greedy time over ours, in the same round. MB, MFLOP:\n"
        "weights read and executed FLOPs a token, without prompts. equal: texts that are\n"
        "those of greedy decoding, token by token."
    )
    return "\n\n".join(parts)


def _title(record: Mapping[str, Any]) -> str:
    settings, machine = record["settings"], record["environment"]
    cut = record["shortened_prompts"]
    return wrapped(
        f"{record['model']}, drafts of up to {settings['drafts']} tokens by {record['method']}; {record['texts']} "
        f"prompts of {', '.join(settings['tasks'])}{f' ({cut} shortened)' if cut else ''}, at most "
        f"{settings['new']} new tokens. {machine['device_name']}, {machine['threads']} threads, "
        f"{machine['precision']}.",
        _WIDTH,
    )


def _speculation_table(record: Mapping[str, Any]) -> str:
    greedy = record["greedy"]
    rows = [["greedy", "", "1.00", f"{greedy['tokens_per_s']['median']:.0f}", "", *_cost(greedy), ""]]
    for point in record["points"]:
        # In % of the token-branches; the requested saving if nothing was drafted.
        saved = point["draft_saved"]["tokens"]
        rows.append(
            [
                percent(point["saving"] if saved is None else saved),
                percent(point["acceptance"]),
                "n/a" if point["tokens_per_verification"] is None else f"{point['tokens_per_verification']:.2f}",
                f"{point['tokens_per_s']['median']:.0f}",
                f"{point['speedup']['median']:.2f}",
                *_cost(point),
                f"{point['equal_texts']}/{record['texts']}",
            ]
        )
    # The header is an ordinary row here: as a header it would get a margin, which 80 columns have no room for.
    return plain_table([list(_HEADER), *rows], (), tablefmt="plain", colalign=["right"] * len(_HEADER))


def _cost(of: Mapping[str, Any]) -> list[str]:
    costs = of["bytes_per_token"], of["flops_per_token"]
    return ["n/a" if cost is None else f"{cost / 1e6:.2f}" for cost in costs]
