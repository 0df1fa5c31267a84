"""Entries whose points are another entry's: the same measurement twice, whatever name, model or date it is given.

Points are compared by what they saved and by what each document scored. A copy and an honest replication on the same
processor are the same files, and neither has a row of its own: that a run was measured again and is the same is said of
the first entry, by `leaderboard verify --record`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from .evidence import Evidence
from .plain import plain

_DIGITS = 6  # another machine, or an earlier version, rounds otherwise beyond


def copies(entries: Mapping[Path, Evidence], submitted: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    """Entries that have no point of their own, each with why. What was measured again stays, whatever is submitted;
    of the others the one with more points, then the one submitted first.

    Args:
        submitted: When each was, as it says.
    """
    points_of = {folder: _points(one) for folder, one in entries.items()}
    order = sorted(
        entries, key=lambda one: (entries[one].again is None, -len(points_of[one]), submitted.get(one, ""), str(one))
    )
    stay: dict[Path, frozenset[str]] = {}
    for folder in order:
        own = points_of[folder]
        other = next((one for one, points in stay.items() if own and own <= points), None)
        if other is None:
            stay[folder] = own
        else:
            yield (
                folder,
                f"all its {len(own)} points are those of the entry {plain(other.name)}, with the same scores of the "
                f"same documents, but an entry is a measurement of its own; if you ran it yourself, it shows that "
                f"{plain(other.name)} can be reproduced, which `adaptive-bench leaderboard verify "
                f"{shlex.quote(plain(str(other)))} --record` keeps beside that entry: propose its verified.json "
                f"instead",
            )


def _points(evidence: Evidence) -> frozenset[str]:
    return frozenset(
        _digest([sweep["task"], sweep["documents"], point["saved"].get("net"), point["scores"]])
        for sweep in evidence.answers["sweeps"]
        for point in sweep["points"]
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(_rounded(value), sort_keys=True).encode()).hexdigest()


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, list):
        return list(map(_rounded, value))
    return {key: _rounded(one) for key, one in value.items()} if isinstance(value, dict) else value
