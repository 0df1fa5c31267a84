"""Timing records on disk: `<out>/time/<key>.json`, one for each method spec, model and setting, complete or absent.

A setting is the circumstances of a timing: device, threads, precision, batch, prompt tokens and new tokens. Times of
different settings are never compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptive_bench.errors import UsageError
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import key_of
from adaptive_bench.store.records import check_schema

FOLDER = "time"
BATCHES = (1, 8, 32)  # rows of a batch: one user, a few, and a server
_SAME = 1e-6  # shares of saved tokens that are closer count as equal


@dataclass(frozen=True)
class TimeCurve:
    """Saved time over saved tokens of one method in one setting.

    Attributes:
        points: Pairs (saved tokens, saved time), rising in saved tokens; no value of saved tokens occurs twice.
        plain_ms: Milliseconds per new token of the plain model: total time of a batch, reading of prompts included,
            over the new tokens of all its rows. `None` if the timing does not say.
    """

    points: tuple[tuple[float, float], ...]
    plain_ms: float | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]], plain_ms: float | None = None) -> TimeCurve:
        """Make a curve of points in any order; points with the same saved tokens are averaged."""
        grouped = groupby(sorted(pairs), key=lambda pair: round(pair[0] / _SAME))
        same = [list(group) for _, group in grouped]
        return cls(tuple((fmean(x for x, _ in group), fmean(y for _, y in group)) for group in same), plain_ms)

    def at(self, saved_tokens: float) -> float | None:
        """Return the saved time at a share of saved tokens, interpolated; `None` outside of the timed range."""
        for x, y in self.points:
            if abs(x - saved_tokens) <= _SAME:
                return y
        for (x, y), (next_x, next_y) in pairwise(self.points):
            if x < saved_tokens < next_x:
                share = (saved_tokens - x) / (next_x - x)
                return y * (1 - share) + next_y * share
        return None


def label(setting: Mapping[str, Any]) -> str:
    """Return a setting in words, the device last: `batch 8, 128+128 tokens, 1 thread, <cpu>`."""
    parts = [f"batch {setting['batch']}", f"{setting['prompt']}+{setting['new']} tokens"]
    if setting["precision"] != "fp32":
        parts.append(setting["precision"])
    if setting["device"] == "cpu":
        parts.append(f"{setting['threads']} thread{'' if setting['threads'] == 1 else 's'}")
    return ", ".join([*parts, setting["device_name"]])


def path_of(out: Path, content: Mapping[str, Any]) -> Path:
    """Return the path of the timing record with this content."""
    return out / FOLDER / f"{key_of(content)}.json"


def write(out: Path, content: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record: `content` is what the timing depends on, `result` what was measured."""
    record = {**content, **result}
    atomic.write_json(path_of(out, content), record)
    return record


def read(path: Path) -> dict[str, Any] | None:
    """Read a record; `None` if it does not exist.

    Raises:
        EnvironmentProblem: A newer version wrote it.
    """
    if not path.is_file():
        return None
    record: dict[str, Any] = json.loads(path.read_bytes())
    check_schema(record, path)
    return record


def find_curves(
    out: Path, fingerprint: str, fits: Callable[[Mapping[str, Any]], bool] = lambda _: True
) -> dict[str, dict[str, TimeCurve]]:
    """Return the time curves of every method spec that was timed on a model, by setting.

    If a method has several records in one setting, the newest counts.

    Args:
        out: The output folder.
        fingerprint: Fingerprint of the model, see `BackboneSource`.
        fits: Says of each record of the model whether it was timed with the code that is installed now.
    """
    records = [read(path) for path in sorted((out / FOLDER).glob("*.json"))]
    ours = [one for one in records if one is not None and one["model_fingerprint"] == fingerprint and fits(one)]
    curves: dict[str, dict[str, TimeCurve]] = {}
    for record in sorted(ours, key=lambda record: str(record["date"])):  # a newer one replaces an older one
        curves.setdefault(label(record["setting"]), {})[record["method"]] = _curve(record)
    return dict(sorted(curves.items()))


def _curve(record: Mapping[str, Any]) -> TimeCurve:
    per_s = record.get("plain", {}).get("tokens_per_s")
    return TimeCurve.of(
        ((float(point["saved"]["tokens"]), float(point["saved_time"]["total"])) for point in record["points"]),
        1000 / float(per_s) if per_s else None,  # ms per token
    )


# Curves by the text of the method spec, for each setting by its label.
TimeCurves = Mapping[str, Mapping[str, TimeCurve]]


def choose(curves: TimeCurves, wanted: str | None) -> TimeCurves:
    """Return the settings whose label contains a text; without a text, all settings.

    Raises:
        UsageError: No label contains the text.
    """
    found = {setting: by_spec for setting, by_spec in curves.items() if wanted is None or wanted in setting}
    if wanted is not None and not found:
        there = "; ".join(curves) or "none"
        raise UsageError(f"--timing is part of the name of a setting, got {wanted!r}. There is: {there}.")
    return found
