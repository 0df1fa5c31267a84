"""The folder of a run: one for one table, with a name that a reader recognises and that stays the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.method import takes_target
from adaptive_bench.runs.planning.conditions import model_name
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import run_key
from adaptive_bench.store.records import SCHEMA
from adaptive_bench.store.runs import KEY_DIGITS, run_command

_METHODS = 2  # named
_LONGEST_PART = 24


def run_folder(config: RunConfig) -> Path:
    """Where a run keeps its table."""
    return config.out / "runs" / run_name(config)


def run_name(config: RunConfig) -> str:
    """Model, the first methods, seeds and the beginning of the run's key: `nano-gateskip-mod-2more-seed1-3f9a2c1b`.

    Where the run is written and on what it is computed make no difference. Methods that are trained for a saving come
    before those they are compared with.
    """
    specs = [MethodSpec.parse(text) for text in config.methods]
    names = list(dict.fromkeys(spec.name for spec in sorted(specs, key=_is_control)))
    more = [f"{len(names) - _METHODS}more"] if len(names) > _METHODS + 1 else names[_METHODS:]
    seeds = f"seed{config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)}seeds"
    key = run_key(config.model_dump(mode="json"))
    return "-".join(
        [_safe(part) for part in (model_name(config.model), *names[:_METHODS], *more, seeds)] + [key[:KEY_DIGITS]]
    )


def write_beginning(folder: Path, config: RunConfig, *, computes: bool = True) -> None:
    """Note the config, when a run began, and what its command needs beside; of one that continues nothing is new.

    Args:
        computes: Whether anything is computed: else what the run was begun with stays as it is noted.
    """
    atomic.update_text(folder / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    about = {
        "schema": SCHEMA,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "directory": str(Path.cwd()),
        "plugins": [str(path) for path in registry.plugin_files()],
        "command": run_command(folder, registry.plugin_files()),
    }
    file = folder / "command.json"
    if not computes and file.is_file():
        return
    if not _says(file, {key: about[key] for key in ("schema", "plugins", "command")}):
        atomic.write_json(file, about)


def _says(file: Path, about: Mapping[str, Any]) -> bool:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(known, dict) and about.items() <= known.items()


def _is_control(spec: MethodSpec) -> bool:
    return not takes_target(spec)


def _safe(part: str) -> str:
    """Letters, digits and a few signs: a name is part of a path and of a command."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.")[:_LONGEST_PART] or "model"
