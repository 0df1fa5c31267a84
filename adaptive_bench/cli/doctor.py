"""`adaptive-bench doctor`: what this machine offers, and what is missing."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench.errors import EnvironmentProblem

_PACKAGES = (
    "adaptive-bench",
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "lm-eval",
    "safetensors",
    "tokenizers",
)


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is `None` for what is only worth knowing."""

    what: str
    ok: bool | None
    detail: str


def doctor(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with local data files (or set ADAPTIVE_BENCH_DATA).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder a run would write to.")] = Path("runs"),
) -> None:
    """Check versions, devices, network, data, caches and the output folder."""
    broken = []
    for finding in _findings(data_dir, out):
        mark = {True: "ok", False: "MISSING", None: "-"}[finding.ok]
        typer.echo(f"{finding.what:16} {mark:8} {finding.detail}")
        broken += [finding.what] if finding.ok is False else []
    if broken:
        raise EnvironmentProblem(f"Not everything is in order: {', '.join(broken)}. The lines above say what to do.")


def _findings(data_dir: Path | None, out: Path) -> Iterator[Finding]:
    yield Finding("python", None, f"{platform.python_version()} on {platform.platform()}")
    yield from map(_package, _PACKAGES)
    yield _devices()
    yield _hub()
    yield _cache()
    yield _data(data_dir)
    yield _writable(out)


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, "not installed: pip install -c constraints.txt -e .")


def _devices() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("devices", False, f"torch cannot be imported: {error}")
    names = [f"cpu ({torch.get_num_threads()} threads)"]
    for index in range(torch.cuda.device_count()):
        memory_gib = torch.cuda.get_device_properties(index).total_memory / 2**30
        names.append(f"cuda:{index} {torch.cuda.get_device_name(index)} ({memory_gib:.0f} GiB)")
    return Finding("devices", True, ", ".join(names))


def _hub() -> Finding:
    from adaptive_bench import hub

    without = "hub ids need --model and --data-dir with local folders; the nano default needs neither"
    answer = hub.ask()
    if answer.answers:
        return Finding("hub", True, f"{answer.endpoint} answers ({answer.detail})")
    what = answer.detail if answer.is_off else f"{answer.endpoint} cannot be reached ({answer.detail})"
    return Finding("hub", None, f"{what}; {without}")


def _cache() -> Finding:
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE)
    return Finding("cache", None, f"{folder} {'exists' if folder.is_dir() else 'is made by the first download'}")


def _data(data_dir: Path | None) -> Finding:
    from adaptive_bench.config import DATA_VARIABLE

    given = str(data_dir) if data_dir else os.environ.get(DATA_VARIABLE)
    if not given:
        return Finding("data", None, f"no local files ({DATA_VARIABLE} is not set): tasks read from the hub")
    if not Path(given).is_dir():
        return Finding("data", False, f"{given} is not a folder: correct --data-dir or {DATA_VARIABLE}")
    return Finding(
        "data", True, f"{given}: {', '.join(sorted(path.name for path in Path(given).iterdir() if path.is_dir()))}"
    )


def _writable(out: Path) -> Finding:
    if out.is_symlink() and not out.exists():
        return Finding("output", False, f"{out} is a link that leads to no folder: correct it, or --out")
    existing = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Finding("output", True, f"{out.absolute()} can be written")
    except OSError as error:
        return Finding(
            "output", False, f"{existing} cannot be written ({error.strerror}): choose another folder with --out"
        )
