"""Our results in the rows and columns of the paper's tables, on the paper's axis: saved tokens of both phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from adaptive_bench.tables.comparable import Conditions, differences

from .marks import marks
from .numbers import number
from .row import Row
from .rows import first_metrics
from .tables import NONE

AXIS = "tokens"
# Row of the paper -> method of ours, whatever its semantics.
_METHODS = (
    (None, "Fine-tuned backbone", "dense"),
    (None, "Random skipping", "random_skip"),
    (None, "CALM (hidden state saturation)", "calm[confidence=state]"),
    (None, "CALM (softmax)", "calm"),
    (None, "FREE (hidden state saturation)", "free[confidence=state]"),
    (None, "FREE (softmax)", "free"),
    (None, "LayerSkip", "layerskip"),
    (None, "MoD (router-tuned)", "router_tuned_mod"),
    (None, "MoD", "mod"),
    (None, "SkipLayer", "skiplayer"),
    (None, "GateSkip", "gateskip"),
)
_ABLATIONS = (
    ("Gate output shape", "Scalar gates", "gateskip[shape=scalar]"),
    ("Gate output shape", "Vector gates (default)", "gateskip"),
    ("Gate parameter sharing", "Shared", "gateskip[sharing=shared]"),
    ("Skipping strategy", "Only attention layers", "gateskip[skip_modules=attention]"),
    ("Skipping strategy", "Only MLP layers", "gateskip[skip_modules=mlp]"),
    ("Skipping strategy", "Skip entire layer (attn gate)", "gateskip[skip_unit=layer]"),
    ("Skipping strategy", "Every-second layer", "gateskip[stride=2]"),
    ("Gate architecture", "MLP-based gate", "gateskip[architecture=mlp]"),
    ("Gate placement", "Gate before module (entry)", "gateskip[placement=before]"),
    ("Gate Loss", "L1", "gateskip[loss=l1]"),
    ("Gate Loss", "KL-div.", "gateskip[loss=kl_layer]"),
    ("Frozen Backbone", "Frozen B.", "gateskip[frozen=true]"),
)
_FEW = tuple(row for row in _METHODS if row[2] in ("dense", "random_skip", "gateskip"))
_TASKS = {
    "CSQA (Gen.)": "csqa", "GSM8K (Gen.)": "gsm8k", "MMLU Stem": "mmlu_stem", "HellaSwag": "hellaswag",
    "CSQA": "csqa_ll", "PIQA": "piqa", "OpenBookQA": "openbookqa", "WinoGrande": "winogrande",
}  # fmt: skip
_SKIPPING = tuple(row for row in _METHODS if row[2] == "gateskip")
_INSTRUCT = "instruct"  # in the name of a model that follows instructions
_WRITTEN, _LIKELIHOOD = ("exact_match", "em"), ("acc", "acc_norm")
_Cells = Mapping[tuple[str, str, str, float], Row]  # label, task, metric, level
_SAME: Mapping[str, str] = {}
_Column = tuple[str, str, Callable[[str], str]]  # group, title, text by label


def layouts(rows: Sequence[Row], variants: Mapping[str, str] = _SAME) -> list[dict[str, Any]]:
    """Tables as `paper_tables` gives them, those of which the board has at least one value.

    An average is the mean score of all the board's tasks of that kind; it is left out where a task has no score. Models
    and recipes have tables of their own; of a task that was asked in several ways, the one with the most documents.

    Args:
        variants: By spec the same method without what it was tuned to; others stand for themselves.
    """
    by_model: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in rows:
        if row.axis == AXIS and row.phase == "all":
            conditions = row.conditions
            by_model.setdefault((conditions.backbone, conditions.recipe), []).append(row)
    apart = differences(_shared(some) for some in by_model.values())
    found = []
    for some in by_model.values():
        said = apart[_shared(some)]
        found += [
            table | {"caption": table["caption"].removesuffix(".") + (f", {said}." if said else ".")}
            for table in _layouts(_asked_alike(some), variants, _INSTRUCT in (_shared(some).model or "").lower())
        ]
    return found


def _shared(rows: Sequence[Row]) -> Conditions:
    """What rows of a model and a recipe have in common, whatever their tasks."""
    first = rows[0].conditions
    return Conditions(first.model, first.backbone, first.recipe)


def _asked_alike(rows: Sequence[Row]) -> list[Row]:
    largest: dict[str, Conditions] = {}
    for row in rows:
        conditions = row.conditions
        known = largest.setdefault(row.task, conditions)
        if (conditions.documents or 0) > (known.documents or 0):
            largest[row.task] = conditions
    return [row for row in rows if row.conditions == largest[row.task]]


def _layouts(rows: Sequence[Row], variants: Mapping[str, str], is_instruct: bool) -> list[dict[str, Any]]:
    first = first_metrics(rows)
    cells = {(row.label, row.task, row.metric, row.level): row for row in rows}
    labels = {row.label: variants.get(row.spec, row.spec) for row in rows}
    written, likelihood = (
        [(task, metric) for task, metric in first.items() if metric.partition(",")[0] in kind]
        for kind in (_WRITTEN, _LIKELIHOOD)
    )
    averages = _averages(cells, "Generative", written, (0, 5, 10, 15, 20, 25))
    averages += _averages(cells, "Log-likelihood", likelihood, (0, 15, 30, 45, 60))
    known = {title: task for title, task in _TASKS.items() if task in first}
    tasks = known or {task: task for task, _ in (*written, *likelihood)}
    at_15 = [("", title, _single(cells, task, first[task], 0.15)) for title, task in tasks.items()]
    instruct = _averages(cells, "Generative", written, (0, 20, 30, 45)) if is_instruct else []
    instruct += _averages(cells, "Log-likelihood", likelihood, (0, 15, 30, 60)) if is_instruct else []
    seconds = [("", f"{level} %", _seconds(cells, first, level / 100)) for level in (5, 15, 25, 35, 50, 70)]
    lambada = [
        (group, f"{level} %", _single(cells, "lambada", metric, level / 100))
        for group, metric in (("Perplexity", "perplexity,none"), ("Accuracy", "acc,none"))
        for level in (0, 10, 20, 30)
    ]
    bleu = [("WMT16-EN-RO", f"{level} %", _single(cells, "wmt16_en_ro", first.get("wmt16_en_ro", ""), level / 100))
            for level in (0, 5, 10, 15, 20, 25)]  # fmt: skip
    names = " and ".join(", ".join(task for task, _ in kind) for kind in (written, likelihood) if kind)
    found = [
        _table(1, f"Mean score of {names} by saved tokens (%).", "saved tokens", _METHODS, averages, labels),
        _table(2, "Score and 95 % interval at 15 % saved tokens.", "method", _METHODS, at_15, labels),
        _table(3, f"Instruct: mean score of {names} (%).", "saved tokens", _FEW, instruct, labels),
        _table(5, f"Variants of GateSkip: mean score of {names} (%).", "saved tokens", _ABLATIONS, averages, labels),
        _table(10, f"Seconds inside model calls, {names} together.", "saved tokens", _SKIPPING, seconds, labels),
        _table(11, "LAMBADA by saved tokens.", "saved tokens", _FEW, lambada, labels),
        _table(12, "English to Romanian, BLEU by saved tokens.", "saved tokens", _FEW, bleu, labels),
    ]
    return [table for table in found if table is not None]


def _averages(cells: _Cells, group: str, tasks: Sequence[tuple[str, str]], levels: Sequence[int]) -> list[_Column]:
    def text(at: float) -> Callable[[str], str]:
        def mean(name: str) -> str:
            some = [cells.get((name, task, metric, at)) for task, metric in tasks]
            scores = [row.score for row in some if row is not None and row.score is not None]
            whole = bool(some) and len(scores) == len(some)
            found = dict.fromkeys(mark for row in some if row is not None for mark, _ in marks(row))
            return number(tasks[0][1], fmean(scores)) + "".join(found) if whole else NONE

        return mean

    return [(group, f"{level} %", text(level / 100)) for level in levels] if tasks else []


def _seconds(cells: _Cells, tasks: Mapping[str, str], at: float) -> Callable[[str], str]:
    """Of all tasks together; a task without a score at the level leaves the sum unknown."""

    def text(name: str) -> str:
        some = [cells.get((name, task, metric, at)) for task, metric in tasks.items()]
        known = [row.seconds for row in some if row is not None and row.seconds is not None]
        return f"{sum(known):.4g}" if known and len(known) == len(some) else NONE

    return text


def _single(cells: _Cells, task: str, metric: str, at: float) -> Callable[[str], str]:
    def text(name: str) -> str:
        row = cells.get((name, task, metric, at))
        if row is None or row.score is None:
            return NONE
        shown = number(metric, row.score) + "".join(mark for mark, _ in marks(row))
        if row.interval is None:
            return shown
        low, high = (number(metric, end) for end in row.interval)
        return f"{shown} [{low}, {high}]"

    return text


def _table(
    table: int,
    caption: str,
    corner: str,
    rows: Sequence[tuple[str | None, str, str]],
    columns: Sequence[_Column],
    labels: Mapping[str, str],
) -> dict[str, Any] | None:
    lines: list[dict[str, Any]] = []
    for section, name, spec in rows:
        for one, variant in labels.items():
            if variant.partition("@")[0] == spec:
                lines.append(
                    {"section": section, "name": f"{name}: {one}", "values_": [text(one) for *_, text in columns]}
                )
    shown = [line for line in lines if any(value != NONE for value in line["values_"])]
    if all(line["name"].split(" (default)")[1:] for line in shown):  # defaults alone vary nothing
        return None
    groups: dict[str, int] = {}
    for group, *_ in columns:
        groups[group] = groups.get(group, 0) + 1
    return {
        "table": table,
        "caption": caption,
        "corner": corner,
        "groups": list(groups.items()) if any(groups) else [],
        "columns": [title for _, title, _ in columns],
        "rows": lines,
    }
