"""`adaptive-bench headroom`: what adaptive compute could save at most on a model and tasks, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from adaptive_bench import output, registry
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
from adaptive_bench.cli.values import numbers_value
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError
from adaptive_bench.validation import LARGEST_SEED

_POLICIES = ("recompute", "copy_below", "evict")


def headroom(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="nano, a folder in Hugging Face layout, a hub id; or a run: its dense model."
        ),
    ],
    tasks: Annotated[str, typer.Option(help="Tasks, as for `run`.")],
    levels: Annotated[str, typer.Option(help="Net savings to read headroom off at.")] = "0.05,0.1,0.15,0.2,0.25",
    limit: Annotated[int, typer.Option(min=1, help="Documents of each task, of both splits; a seeded draw.")] = 128,
    num_fewshot: NumFewshot = None,
    kv: Annotated[
        str, typer.Option(metavar="|".join(_POLICIES), help="What tokens that left leave in the layers above.")
    ] = "recompute",
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything that is drawn.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Sequences evaluated together.")] = 64,
    data_dir: DataDir = None,
    device: Device = "auto",
    out: Annotated[
        Path, typer.Option(parser=output.folder, help="Folder of the runs, and for what is measured.")
    ] = Path("runs"),
    to: RecordFile = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Measure what adaptive methods could save at most: which sites matter, oracles, best static sets of layers.

    Headroom is an attainable oracle less the best static set. Layers are left out of the model as it is: methods that
    train it to skip are not bounded. Train it on the tasks first (`run --methods dense`). Oracles know the answers:
    they are no methods, and no table ranks them.
    """
    if kv not in _POLICIES:
        raise UsageError(f"--kv is one of {', '.join(_POLICIES)}, got {kv!r}.")
    rule = "savings between 0 and 1 such as 0.1,0.15 (0.15 is 15 %)"
    asked = tuple(sorted(numbers_value(levels, "--levels", float, rule, lambda level: 0 < level < 1)))
    if to is not None:
        output.check(to)  # before what would be lost is measured
    load_libraries()
    registry.load_plugins(plugin)
    from adaptive_bench.cli.headroom_table import shown
    from adaptive_bench.headroom.study import Settings, study
    from adaptive_bench.headroom.subject import find_subject
    from adaptive_bench.live_display import open_reporter

    names, root = tasks_and_data(tasks, data_dir)
    settings = Settings(
        levels=asked,
        limit=limit,
        seed=seed,
        num_fewshot=num_fewshot,
        kv=cast(Literal["recompute", "copy_below", "evict"], kv),
        data_dir=root,
        batch_size=batch,
    )
    subject = find_subject(model, device, out)
    with open_reporter() as reporter:
        record = study(subject, names, settings, out, reporter)
    give_record(record, to, as_json, shown)
