"""`adaptive-bench headroom`: bounds what adaptive compute could save on a model and tasks, before any training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import load_libraries, plain_table, wrapped
from adaptive_bench.headroom import verdict
from adaptive_bench.spec import MethodSpec
from adaptive_bench.validation import LARGEST_SEED

_WIDTH = 80


def headroom(
    model: options.RunOrModel,
    tasks: Annotated[str, typer.Option(help="Tasks, as for `run`.")],
    levels: Annotated[str, typer.Option(help="Net savings at which headroom is read.")] = "0.05,0.1,0.15,0.2,0.25",
    limit: Annotated[int, typer.Option(min=1, help="Documents of each task, of both splits; a seeded draw.")] = 128,
    num_fewshot: options.NumFewshot = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of everything that is drawn.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Sequences evaluated together.")] = 64,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    out: options.Out = options.DEFAULT_OUT,
    to: options.RecordFile = None,
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
) -> None:
    """Measure what adaptive methods could save at most: which sites matter, oracles, best static sets of layers.

    Headroom is the score of an attainable oracle less that of the best static set. Layers are left out of the model as
    it is, so methods that train it to skip are not bounded. Train it on the tasks first (`run --methods dense`); of a
    run, the dense model is studied. Oracles know the answers: they are not methods, and no table ranks them.
    """
    asked = options.shares(levels, "--levels")
    load_libraries(plugin)
    from adaptive_bench.headroom.named_models import find_subjects
    from adaptive_bench.headroom.study import Settings, study
    from adaptive_bench.live_display import Display

    names, root = options.tasks_and_data(tasks, data_dir)
    settings = Settings(levels=asked, limit=limit, seed=seed, num_fewshot=num_fewshot, data_dir=root, batch_size=batch)
    asked_for = "the model that headroom is measured on,"
    subject = find_subjects(model, [MethodSpec("dense")], out=out, device=device, asked=asked_for)
    with Display() as reporter:
        record = study(subject, names, settings, out, reporter)
    options.give_record(record, to, as_json, shown)


def shown(record: Mapping[str, Any]) -> str:
    """All tasks, one after the other, and a legend."""
    parts = [part for task in record["tasks"] for part in _task(task)]
    return "\n\n".join([*parts, *_LEGEND])


def _task(task: Mapping[str, Any]) -> list[str]:
    unit, dense = task["unit"], task["dense"]
    percent = " (%)" if unit == "share" else ""
    better = "" if task["better"] == "higher" else ", lower is better"
    title = (
        f"{task['task']}: {task['metric']}{percent}{better}; {task['documents']} documents, all layers "
        f"{_score(dense['score'], unit)} {_interval(dense, unit)}"
    )
    told = [title, verdict(task), f"Sites that matter, as for `run`: {task['sites']['described']}."]
    heading, *sentences = (wrapped(text, _WIDTH) for text in told)
    rows = []
    for level in task["levels"]:
        row = [f"{100 * level['level']:.0f} %", *["n/a"] * 4]
        if level["reached"]:
            row[1:4] = [_score(level[name], unit) for name in ("static", "cross_fitted", "gold")]
            if (found := level["headroom"]) is not None:
                row[4] = f"{_score(found['difference'], unit, '+')} {_interval(found, unit, '+')}"
        rows.append(row)
    table = plain_table(rows, ["saved", "static", "crossed", "gold", "headroom"], colalign=("right",) * 5)
    return [heading, table, *sentences]


def _score(value: float | None, unit: str, sign: str = "") -> str:
    """A share in per cent, any other score (bits per byte, for example) as it is."""
    if value is None:
        return "n/a"
    return f"{100 * value:{sign}.1f}" if unit == "share" else f"{value:{sign}.3f}"


def _interval(found: Mapping[str, Any], unit: str, sign: str = "") -> str:
    low, high = found["low"], found["high"]
    return "" if low is None else f"[{_score(low, unit, sign)}, {_score(high, unit, sign)}]"


_LEGEND = (
    wrapped(
        "saved: net FLOPs, mean over documents. static: best mixture of fixed sets of layers, chosen on validation "
        "documents, left out of the model as it is. The others choose a set for each document, knowing answers: gold "
        "by the right answers; crossed by the full model's answers to one asking, scored on another. headroom: crossed "
        "less static, with the 95 % interval over documents; above 0 the oracle is better.",
        _WIDTH,
    ),
    "Oracles bound what methods can do on this model. They are no methods.",
)
