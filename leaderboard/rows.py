"""Rows as they are let in: a table is untrusted input, and a row that breaks a rule stays outside with the reason."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from adaptive_bench.metric import metric_of

from .row import Row

LARGEST_FILE_BYTES = 64_000_000
_LONGEST_NAME = 200
_STATUSES = ("ok", "outside", "partial", "inert")
_AXES = ("net", "core", "tokens", "claimed", "projected", "bytes", "time")
_PHASES = ("all", "prefill", "decode")
# What names are made of. None of it is markup, a path, a URL scheme, a formula's first character or an escape.
_METHOD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-]*(\[[A-Za-z0-9_.,= +\-]*\])?(@\w+)?", re.ASCII)
_TASK = re.compile(r"(perplexity:)?[A-Za-z0-9_][A-Za-z0-9_\-]*", re.ASCII)
_METRIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_,@\-]*", re.ASCII)
_MODEL = re.compile(r"(?!www\.)[A-Za-z0-9_][A-Za-z0-9_./@\-]*", re.ASCII)
_RECIPE = re.compile(r"(?!.*www\.)[A-Za-z0-9_](?:[A-Za-z0-9_ .,+/\-]|(?<=perplexity):(?!/))*", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
_MADE_WITH = re.compile(r"(?!.*www\.)[A-Za-z0-9_](?:[A-Za-z0-9_ .,;+@()\-]|(?<=device cuda):)*", re.ASCII)
_SETTING = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .,+@()\-]*", re.ASCII)

SAVINGS = tuple(f"saved_{phase}{axis}" for phase in ("", "prefill_", "decode_") for axis in ("tokens", "core", "net"))

WORTH = ("shuffled_score", "decisions_worth", "decisions_low", "decisions_high")  # of a method's decisions


class Rejected(ValueError):
    """An entry breaks a rule; the message says which and never repeats more than a few characters of the entry."""


def read_json(path: Path) -> Any:
    """A JSON file, without `NaN`, endless nesting, numbers of any length or a key twice.

    Raises:
        Rejected: It cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise Rejected(f"it is larger than {LARGEST_FILE_BYTES // 1_000_000} MB")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant, object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, Rejected) else type(error).__name__
        raise Rejected(f"{path.name} is not readable JSON ({why})") from error


def spec_of(row: Mapping[str, Any]) -> str:
    """The method of a row with its semantics, as `methods.json` names it."""
    method, semantics = str(row["method"]), row.get("semantics", "bench")
    return method if semantics == "bench" or method.endswith(f"@{semantics}") else f"{method}@{semantics}"


def first_metrics(rows: Iterable[Row]) -> dict[str, str]:
    """By task the metric it is judged by: the first of its rows."""
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row.task, row.metric)
    return first


_PLACE = ("method", "semantics", "task", "metric", "axis", "phase", "level", "timing", "projected_shape")
_DEFAULTS = {"semantics": "bench", "phase": "all"}


def only_once(rows: Iterable[object]) -> None:
    """Refuse a table that says something twice: whoever reads it would take the one or the other.

    Raises:
        Rejected: Two rows are of the same method, task, metric, axis, phase, level and setting.
    """
    seen: dict[str, tuple[int, object]] = {}
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            place = place_of(row)
            other, score = seen.setdefault(place, (number, row.get("score")))
            if other != number:
                raise Rejected(
                    f"rows {other} and {number} of table.json are of the same method, task, metric, axis and level, "
                    f"with the scores {_score(score)} and {_score(row.get('score'))}"
                )


def place_of(row: Mapping[str, Any]) -> str:
    """What a row of a table is of; no other row of the table has the same."""
    return repr([row.get(key, _DEFAULTS.get(key)) for key in _PLACE])


def checked(value: object) -> dict[str, Any]:
    """A row with the known keys only, every value of the right kind.

    Raises:
        Rejected: A value is missing, of the wrong type or out of its range.
    """
    if not isinstance(value, Mapping):
        raise Rejected(f"a row is an object, got {_shown(value)}")
    row = {key: _value(key, check, value.get(key, default)) for key, (check, default) in _FIELDS.items()}
    metric = metric_of(row["metric"])
    for key in ("score", "low", "high"):
        if row[key] is not None and not metric.low <= row[key] <= metric.high:
            raise Rejected(f"{key} of {row['metric']} lies in [{metric.low:g}, {metric.high:g}], got {row[key]:.4g}")
    if None not in (row["low"], row["high"]) and row["low"] > row["high"]:
        raise Rejected("the interval ends before it begins")
    if (row["low"] is None) != (row["high"] is None):
        raise Rejected("an interval has two ends")
    if row["score"] is None and row["status"] != "outside":
        raise Rejected(f"a row without score is 'outside', got {row['status']!r}")
    return row


def _value(key: str, check: Callable[[object], bool], value: object) -> Any:
    if value is _MISSING:
        raise Rejected(f"{key} is missing")
    try:
        good = check(value)
    except OverflowError:  # an integer beyond the range of floats
        good = False
    if not good:
        raise Rejected(f"{key} has no valid value, got {_shown(value)}")
    return value


def _score(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the text {re.sub(r'[^A-Za-z0-9_ -]', '?', value[:24])!r}"
    return type(value).__name__


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key twice whoever reads it would take the one or the other."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Rejected(f"an object has a key once, got {_shown(twice)} twice")
    return found


def _no_constant(name: str) -> None:
    raise Rejected(f"{name} is no JSON")


_MISSING = object()


def _text(form: re.Pattern[str], longest: int = _LONGEST_NAME) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and len(value) <= longest and form.fullmatch(value) is not None


def _one_of(known: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in known


def _number(low: float, high: float) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type, operator]

    return check


def _whole(high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high


def _maybe(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


_SHARE = _maybe(_number(-1e6, 1.0))
_SCORE = _maybe(_number(-1e30, 1e30))  # perplexity of text that a model cannot read
_FIELDS: Mapping[str, tuple[Callable[[object], bool], object]] = {
    "method": (_text(_METHOD), _MISSING),
    "semantics": (_one_of(("bench", "paper")), "bench"),
    "task": (_text(_TASK), _MISSING),
    "metric": (_text(_METRIC), _MISSING),
    "axis": (_one_of(_AXES), _MISSING),
    "phase": (_one_of(_PHASES), "all"),
    "level": (_number(0.0, 1.0), _MISSING),
    "score": (_SCORE, _MISSING),
    "low": (_SCORE, None),
    "high": (_SCORE, None),
    "seeds": (_whole(10**6), 0),
    "documents": (_whole(10**12), 0),
    **dict.fromkeys(SAVINGS, (_SHARE, None)),
    "claimed": (_SHARE, None),
    "claimed_minus_executed": (_maybe(_number(-1e6, 1e6)), None),
    "projected_net": (_SHARE, None),
    "projected_shape": (_maybe(_text(_SETTING)), None),
    "status": (_one_of(_STATUSES), "ok"),
    "timing": (_maybe(_text(_SETTING)), None),
    "parameters_added": (_maybe(_whole(10**15)), None),
    "train_tokens": (_maybe(_whole(10**18)), None),
    "train_flops": (_maybe(_number(0.0, 1e40)), None),
    "target": (_maybe(_number(0.0, 1.0)), None),
    "beyond_target": (_maybe(lambda value: isinstance(value, bool)), None),
    "below_target": (_maybe(lambda value: isinstance(value, bool)), None),
    "target_axis": (_maybe(_one_of(_AXES)), None),
    "trained_without": (_maybe(_number(0.0, 1.0)), None),
    "eligible": (_maybe(_text(_SETTING)), None),
    **dict.fromkeys(WORTH, (_SCORE, None)),
    "shuffled_apart": (_maybe(_number(-1e6, 1e6)), None),
    "gap": (_maybe(_number(0.0, 2e6)), None),
    "distance": (_maybe(_number(0.0, 2e6)), None),
    "dial": (_maybe(_number(-1e12, 1e12)), None),
    "seconds": (_maybe(_number(0.0, 1e12)), None),
    "flops_per_token": (_maybe(_number(0.0, 1e30)), None),
    "bytes_per_token": (_maybe(_number(0.0, 1e18)), None),
    "ms_per_token": (_maybe(_number(0.0, 1e12)), None),
    "shots": (_maybe(_whole(10**6)), None),
    "model": (_maybe(_text(_MODEL)), None),
    "backbone": (_maybe(_text(_MODEL)), None),
    "recipe": (_maybe(_text(_RECIPE, 1000)), None),
    "task_version": (_maybe(_text(_SETTING)), None),
    "asked": (_maybe(_text(_KEY)), None),
    "contents": (_maybe(_text(_KEY)), None),
    "definition": (_maybe(_text(_KEY)), None),
    "made_with": (_maybe(_text(_MADE_WITH, 1000)), None),
}
# A table has intervals in parts too, which a board does not show.
COLUMNS = frozenset({*_FIELDS, "interval", "document_error", "seed_error"})
