"""`adaptive-bench speculate`: self-speculative decoding with a method's dial as the draft, beside greedy decoding."""

from __future__ import annotations

from typing import Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.completion import specs as specs_of
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Out, run_names
from adaptive_bench.cli.studies import (
    AsJson,
    DataDir,
    Device,
    NumFewshot,
    Plugins,
    RecordFile,
    give_record,
    tasks_and_data,
)
from adaptive_bench.cli.values import is_count, numbers_value
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import Interrupted, UsageError
from adaptive_bench.store.runs import DEFAULT_OUT
from adaptive_bench.validation import MOST_THREADS

_PRECISIONS = ("fp32", "bf16")


def speculate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL",
            autocompletion=run_names,
            help="A run, by its name or folder or as `last`; a saved model; or nano, a folder, a hub id.",
        ),
    ],
    tasks: Annotated[str, typer.Option(help="Tasks whose prompts are continued, as for `run`.")],
    method: Annotated[
        str | None,
        typer.Option(
            autocompletion=specs_of, help="Method spec: which of a run; on a plain model `static_depth` by default."
        ),
    ] = None,
    savings: Annotated[str, typer.Option(help="Shares of token-branches that drafting skips.")] = "0.25,0.5",
    draft_length: Annotated[int, typer.Option(min=1, help="Most tokens of a draft.")] = 4,
    batch: Annotated[str, typer.Option(help="Rows of a batch; each is a setting of its own.")] = "1,8",
    limit: Annotated[int, typer.Option(min=1, help="Documents of each task, a seeded draw.")] = 8,
    num_fewshot: NumFewshot = None,
    max_new_tokens: Annotated[int, typer.Option(min=2, help="Most tokens to write after each prompt.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of timing; each writes all texts in all ways.")] = 3,
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads; default: as torch decides.")
    ] = None,
    precision: Annotated[str, typer.Option(metavar="|".join(_PRECISIONS), help="Of the weights.")] = "fp32",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = DEFAULT_OUT,
    to: RecordFile = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Draft with the dial turned, verify with the full model: acceptance, speed and cost beside greedy decoding.

    The text is that of greedy decoding; where it is not, the logits of the two candidates say whether that is rounding.
    Ends with exit code 1 where it is not.
    """
    if precision not in _PRECISIONS:
        raise UsageError(f"--precision is {' or '.join(_PRECISIONS)}, got {precision!r}.")
    batches = numbers_value(batch, "--batch", int, "whole numbers from 1 such as 1,8", is_count)
    rule = "shares from 0 to 1 such as 0.25,0.5 (0.25 is 25 %)"
    shares = numbers_value(savings, "--savings", float, rule, lambda share: 0 <= share <= 1)
    if to is not None:
        output.check(to)  # before what would be lost is measured
    load_libraries()
    registry.load_plugins(plugin)
    import torch

    from adaptive_bench.cli.speculate_table import shown
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.speculation import Settings, defects, find_drafter, study

    names, root = tasks_and_data(tasks, data_dir)
    settings = Settings(
        tasks=tuple(names),
        limit=limit,
        savings=tuple(sorted(shares)),
        drafts=draft_length,
        batches=batches,
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
    try:
        with open_reporter() as reporter:
            record = study(drafter, settings, reporter)
    except KeyboardInterrupt:
        raise Interrupted("Stopped. Nothing was written; give the command again.") from None
    give_record(record, to, as_json, shown)
    if defects(record):
        raise typer.Exit(1)
