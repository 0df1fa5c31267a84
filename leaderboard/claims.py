"""What an entry says of itself beside its numbers: dates that can be, and a run that is that of its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.errors import AdaptiveBenchError, message_of
from adaptive_bench.store.results import ENTRY, PACKED_RECORDS, RUN
from adaptive_bench.strict_yaml import read_mapping

from .plain import plain
from .rows import Rejected, read_json

_CLOCKS = timedelta(hours=1)  # two machines may disagree by so much
OF_A_MACHINE = ("out", "data_dir", "device", "preset")  # keys of a configuration that `submit` leaves out
OF_A_WATCH = ("track", "cell_timeout", "stall_warning", "for_models")  # likewise, since entries of version 3
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?\+00:00", re.ASCII)
_SAME = ("methods", "tasks", "seeds", "model", "match_on", "match_phase")


def date_of(file: str, key: str, value: object) -> datetime:
    """A date as entries have it, in UTC, which is not in the future.

    Raises:
        Rejected: It is none.
    """
    try:
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise ValueError
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise Rejected(
            f"{file}: {key} is a date with its time in UTC, 2026-01-31T12:00:00+00:00 say, got {plain(value, 40)!r}"
        ) from error
    if found > datetime.now(UTC) + _CLOCKS:
        raise Rejected(f"{file}: {key} {plain(value, 40)} is in the future")
    return found


def check_order(earlier: tuple[str, datetime], later: tuple[str, datetime]) -> None:
    """Refuse two dates, each with what it is of, that are the wrong way round."""
    if earlier[1] > later[1] + _CLOCKS:
        raise Rejected(f"{later[0]} {later[1]:%Y-%m-%d %H:%M} is before {earlier[0]} {earlier[1]:%Y-%m-%d %H:%M}")


def submitted(folder: Path) -> datetime | None:
    """When an entry was submitted, as far as it says."""
    about = read_json(folder / ENTRY)
    value = about.get("submitted") if isinstance(about, dict) else None
    return None if value is None else date_of(ENTRY, "submitted", value)


def check_records_dates(folder: Path, since: Sequence[str]) -> None:
    """Refuse an entry that was submitted before its last record was made.

    Args:
        since: When the first and the last record got the state that they have; empty where none says it.
    """
    if not since:
        return
    _, last = (date_of(PACKED_RECORDS, "since", one) for one in (since[0], since[-1]))
    if (when := submitted(folder)) is not None:
        check_order((f"{PACKED_RECORDS}: its last record", last), (f"{ENTRY}: submitted", when))


def check_run_json(folder: Path) -> None:
    """Refuse a `run.json` that is not of the `config.yaml` beside it, or not of a run that is done."""
    about = _object(folder / RUN)
    if not about or not (folder / "config.yaml").is_file():  # the first entries had neither
        return
    try:
        config = read_mapping(folder / "config.yaml")
    except AdaptiveBenchError as error:
        raise Rejected(plain(f"config.yaml: {message_of(error)}").removesuffix(".")) from error
    is_early = read_json(folder / ENTRY).get("schema", 1) < 3
    if machine := [key for key in (*OF_A_MACHINE, *(() if is_early else OF_A_WATCH)) if key in config]:
        raise Rejected(f"config.yaml: {machine[0]} {plain(config[machine[0]], 80)} is of a machine, and of no entry")
    if (folder / "config.yaml").read_bytes() != config_text(config):
        raise Rejected(
            "config.yaml is not as `leaderboard submit` writes it: a comment, or another form of the same values"
        )
    for key in _SAME:
        if key in about and key in config and about[key] != config[key]:
            raise Rejected(f"{RUN}: {key} {plain(about[key], 80)}, in config.yaml {plain(config[key], 80)}")


def config_text(config: Mapping[str, Any]) -> bytes:
    """A configuration as an entry has it: the same values have one form, and nothing is said beside them."""
    return yaml.safe_dump(dict(config), sort_keys=False).encode()


def _object(path: Path) -> Mapping[str, Any]:
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise Rejected(f"{path.name} holds keys and values, got {type(found).__name__}")
    return found
