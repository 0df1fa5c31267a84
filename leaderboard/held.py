"""The files of an entry against what its records, or else its answers, give: the first value that differs is named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from adaptive_bench.metric import metric_of
from adaptive_bench.probed import stored_matrix
from adaptive_bench.source import code_of
from adaptive_bench.spec import method_name
from adaptive_bench.tables.document_values import is_pooled

from .answers import answers_of
from .forms import VERSIONS
from .plain import plain
from .row import Row
from .rows import Rejected, checked

_ROUNDING = 1e-9  # another machine sums in another order
_SUMMED = 1e-6  # documents are summed one by one, a table in groups
_FACTS = ("kv_policy", "executor", "variant")
_PLACE = ("method", "semantics", "task", "seed", "target")
_CODE = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MOST_SETTINGS = 1_000_000
_FORMS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("causality", "kv_policy", "executor", "variant"), lambda value: isinstance(value, str)),
    "code": lambda value: isinstance(value, str) and _CODE.fullmatch(value) is not None,
    "settings_tried": lambda value: type(value) is int and 0 <= value <= _MOST_SETTINGS,
}


def check_table(rows: Sequence[Mapping[str, Any]], now: Mapping[str, Any]) -> None:
    """Refuse a table that is not what the records give.

    Args:
        now: What `derived.derive` gives.
    """
    from adaptive_bench.runs.rederive import differing

    if found := differing(rows, now["rows"], now["unprojected"]):
        more = f", and {len(found) - 1} more" if found[1:] else ""
        raise Rejected(f"table.json is not what its records say: {plain(found[0], 300)}{more}")


def check_answers(said: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse answers that are not what the records give. What an earlier version did not write is not compared."""
    try:
        claimed, found = ({tuple(str(one[key]) for key in _PLACE): one for one in of["sweeps"]} for of in (said, now))
    except (KeyError, TypeError) as error:
        raise Rejected("answers.json does not hold what a run writes") from error
    if len(claimed) != len(said["sweeps"]):
        raise Rejected("answers.json has a sweep twice")
    for place in sorted(claimed.keys() | found.keys()):
        where = f"answers.json: {plain(', '.join(place[:4]), 200)}"
        if place not in found or place not in claimed:
            raise Rejected(f"{where}: is not {'among the records' if place not in found else 'in it'}")
        if (different := next(_different(claimed[place], found[place]), None)) is not None:
            path, one, other = different
            raise Rejected(f"{where}: {path} {plain(one, 60)}, by the records {plain(other, 60)}")


def check_methods(said: Mapping[str, Any], now: Mapping[str, Mapping[str, Any]], specs: Collection[str]) -> None:
    """Refuse facts of methods that are not those of the methods that are here: a better class, say.

    Args:
        now: What the records give; empty without records.
        specs: Of the table.
    """
    if now and (more := sorted(said.keys() - specs)):
        raise Rejected(f"methods.json: {plain(more[0], 100)} is not in the table")
    for spec, facts in said.items():
        where = f"methods.json: {plain(spec, 100)}"
        if not isinstance(facts, Mapping):
            raise Rejected(f"{where}: has keys and values, got {type(facts).__name__}")
        for key, value in facts.items():
            if key not in _FORMS or not (value is None or _FORMS[key](value)):
                raise Rejected(f"{where}: {plain(key, 40)} {plain(value, 60)!r} is not what a run writes")
        known = stored_matrix(method_name(spec)).get(spec, {}).get("causality")
        if known is not None and facts.get("causality") != known:
            raise Rejected(f"{where}: causality {plain(facts.get('causality'), 20)}, by the conformance suite {known}")
        if known is None and facts.get("causality") not in (None, "C0", "C1", "C2"):
            raise Rejected(f"{where}: causality is C0, C1 or C2, got {plain(facts.get('causality'), 20)}")
        for key in _FACTS if spec in now else ():
            if key in now[spec] and facts.get(key) != now[spec][key]:
                raise Rejected(
                    f"{where}: {key} {plain(facts.get(key), 60)}, by the records {plain(now[spec][key], 60)}"
                )
        tried, least = facts.get("settings_tried"), now.get(spec, {}).get("settings_tried", 0)
        if isinstance(tried, int) and tried < least:
            raise Rejected(f"{where}: settings_tried {tried}, by the records {least} at least")
        for key in ("settings_tried", "code") if spec in now else ():
            if facts.get(key) is None:
                raise Rejected(f"{where}: {key} is missing")
        if spec in now:
            _check_code(where, facts["code"], now[spec]["code"], code_of(method_name(spec)))
    if now and (missing := sorted(specs - said.keys())):
        raise Rejected(f"methods.json: {plain(missing[0], 100)} of the table is not in it")


def _check_code(where: str, said: str, known: str | None, present: str | None) -> None:
    """Refuse another digest of a method's code than its records give; records of early versions, which give none, were
    not made by the present code.
    """
    if known is not None and said != known:
        raise Rejected(f"{where}: code {said}, by the records {known}")
    if known is None and said == present:
        raise Rejected(f"{where}: code {said} is the present one, by the records an earlier one")


def check_environments(said: object, now: Sequence[Mapping[str, Any]]) -> None:
    """Refuse versions and devices that no record was made with, and those that are left out."""
    made = [{key: plain(one[key], 200) for key in VERSIONS if one.get(key) not in (None, "")} for one in now]
    known = said if isinstance(said, list) else []
    for one in known:
        if one not in made:
            raise Rejected(f"entry.json: environments {plain(one, 200)}, by the records {plain(made[0], 200)}")
    if missing := [one for one in made if one and one not in known]:
        raise Rejected(f"entry.json: environments lack {plain(missing[0], 200)}, which records were made with")


def check_scores(rows: Sequence[Mapping[str, Any]], answers: Mapping[str, Any]) -> None:
    """Refuse a table without records whose scores or seeds are not what its answers give, where it has answers."""
    known = answers_of(answers)
    for number, values in enumerate(rows):
        row = Row.of(checked(values))
        seeds = known.seeds(row)
        if not seeds or row.score is None:
            continue
        where = f"table.json: row {number}, {plain(row.spec, 100)} on {row.task} at {row.level:g}"
        if row.seeds > len(set(seeds)):
            raise Rejected(f"{where}: seeds {row.seeds}, in answers.json {len(set(seeds))}")
        (found,) = known.at_levels(row, [row.level])
        if found is None or found.left_out or is_pooled(row.metric) or not metric_of(row.metric).is_mean:
            continue
        made = fmean(found.values.mean(axis=1).tolist())
        if not math.isclose(row.score, made, rel_tol=_SUMMED, abs_tol=_SUMMED):
            raise Rejected(f"{where}: score {row.score:.6g}, by answers.json {made:.6g}")


def _different(said: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two plain values are not the same: a path, and both values there."""
    if isinstance(said, Mapping) and isinstance(now, Mapping):
        for key in said:
            yield from _different(said[key], now.get(key), f"{path}.{plain(key, 60)}".lstrip("."))
    elif isinstance(said, list) and isinstance(now, list) and len(said) == len(now):
        for place, (one, other) in enumerate(zip(said, now, strict=True)):
            yield from _different(one, other, f"{path}[{place}]")
    elif isinstance(said, int | float) and isinstance(now, int | float):
        if not math.isclose(said, now, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            yield path, said, now
    elif said != now:
        yield path, said, now
