"""Speeds that this machine was timed at before, so that the next forecast need not time them again.

They lie in the user's cache. A speed holds for the processor, threads, torch version and model shape that it was timed
with and for the versions of this package's code, and for a week: a machine that was busy then is not busy for ever.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig

from adaptive_bench import __version__
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.model.timing import describe_device
from adaptive_bench.source import FLOORS
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import key_of

_SCHEMA = 1
_KEPT_S = 7 * 24 * 3600.0
_SHAPE = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)


class RememberedSpeed:
    """Seconds by what was done, under one set of conditions.

    Args:
        shape: Config of the model that is timed.
        device: Where it is timed.
        file: Where speeds are kept; by default in the user's cache.
    """

    def __init__(self, shape: PretrainedConfig, device: torch.device, file: Path | None = None) -> None:
        self._file = file or cache_file()
        self._conditions = {
            "processor": describe_device(device),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "shape": {name: getattr(shape, name, None) for name in _SHAPE},
            "code": {"version": __version__, **FLOORS},
        }

    def get(self, work: Mapping[str, Any]) -> float | None:
        """Seconds that some work took before; `None` where it was not timed, or too long ago.

        Args:
            work: Everything that its duration depends on beside the conditions, as plain values.
        """
        entry = self._read().get(self._key(work))
        return None if entry is None else entry[0]

    def put(self, work: Mapping[str, Any], seconds: float) -> None:
        """Keep what some work took."""
        speeds = self._read() | {self._key(work): (seconds, time.time())}
        with suppress(EnvironmentProblem):  # a home that cannot be written costs the next forecast this timing again
            atomic.write_json(self._file, {"schema": _SCHEMA, "speeds": speeds})

    def _key(self, work: Mapping[str, Any]) -> str:
        return key_of({**self._conditions, "work": dict(work)})

    def _read(self) -> dict[str, tuple[float, float]]:
        """Seconds and when they were measured, by key; without those that are too old."""
        now_s = time.time()
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            speeds = kept["speeds"] if kept["schema"] == _SCHEMA else {}
            found = {str(key): (float(seconds), float(at_s)) for key, (seconds, at_s) in speeds.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent or damaged: it is made anew
            return {}
        return {key: entry for key, entry in found.items() if 0 <= now_s - entry[1] <= _KEPT_S}


def cache_file() -> Path:
    """Where speeds are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "adaptive-bench" / "speeds.json"
