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
    settings = Settings(
        levels=asked,
        limit=limit,
        seed=seed,
        num_fewshot=num_fewshot,
        data_dir=root,
        batch_size=batch,
    )
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
    number = _Number(task["unit"])
    dense = task["dense"]
    better = "" if task["better"] == "higher" else ", lower is better"
    title = (
        f"{task['task']}: {task['metric']}{number.unit}{better}; {task['documents']} documents, all layers "
        f"{number.of(dense['score'])} {number.ends(dense)}"
    )
    told = [title, verdict(task), f"Sites that matter, as for `run`: {task['sites']['described']}."]
    heading, *sentences = (wrapped(text, _WIDTH) for text in told)
    return [heading, _levels(task, number), *sentences]


def _levels(task: Mapping[str, Any], number: _Number) -> str:
    rows = []
    for level in task["levels"]:
        if not level["reached"]:
            rows.append([f"{100 * level['level']:.0f} %", *["n/a"] * 4])
            continue
        readings = [level[name] for name in ("static", "cross_fitted", "gold")]
        rows.append([f"{100 * level['level']:.0f} %", *map(number.of, readings), number.difference(level["headroom"])])
    return plain_table(rows, ["saved", "static", "crossed", "gold", "headroom"], colalign=("right",) * 5)


class _Number:
    """Formats the numbers of a metric."""

    def __init__(self, unit: str) -> None:
        # Shares are shown in per cent, all else (bits per byte, for example) as it is.
        self._scale, self._digits = (100, 1) if unit == "share" else (1, 3)
        self.unit = " (%)" if unit == "share" else ""

    def of(self, value: float | None, sign: str = "") -> str:
        """A score."""
        return "n/a" if value is None else f"{self._scale * value:{sign}.{self._digits}f}"

    def ends(self, found: Mapping[str, Any], sign: str = "") -> str:
        """An interval."""
        return "" if found["low"] is None else f"[{self.of(found['low'], sign)}, {self.of(found['high'], sign)}]"

    def difference(self, found: Mapping[str, Any] | None) -> str:
        """A difference with its interval."""
        return "n/a" if found is None else f"{self.of(found['difference'], '+')} {self.ends(found, '+')}"


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
