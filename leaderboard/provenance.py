"""Collects where rows come from: each run's config, command, versions, device, seeds, digests and failures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.hub import is_hub_id
from adaptive_bench.spec import method_name
from adaptive_bench.store import manifest
from adaptive_bench.store.keys import code_of
from adaptive_bench.store.manifest import Manifest
from adaptive_bench.store.records import Record
from adaptive_bench.store.runs import ending_of, plugins_in, read_json

from .entry import HEADROOM, VERSIONS, Entry, read_headroom
from .plain import block, plain
from .row import Rejected


def runs_of(folders: Sequence[Path], entries: Mapping[Path, Entry] | None = None) -> list[dict[str, Any]]:
    """What the page says about each run or, for folders in `entries`, entry. Anything missing is left out."""
    known = entries or {}
    return [_of_entry(known[folder]) if folder in known else _run(folder) for folder in folders]


def measured_earlier(folders: Sequence[Path]) -> str:
    """A sentence that names the methods measured by other code than the present one; empty if there are none.

    Without a plugin it is unknown whether its code has changed since. If two runs disagree, the first one's word
    counts.
    """
    is_old: dict[str, bool] = {}
    for spec, facts in _methods(folders):
        here = code_of(method_name(spec))
        is_old.setdefault(plain(spec, 200), bool(here and facts.get("code")) and facts["code"] != here)
    old = [f"`{spec}`" for spec in is_old if is_old[spec]]
    if not old:
        return ""
    named = "every method" if len(old) == len(is_old) else ", ".join(old)
    return f"Measured by an earlier version of the method, or of what executes it: {named}."


def variants_of(folders: Sequence[Path]) -> dict[str, str]:
    """For each spec, the same method without its tuned parameters, as far as runs record it."""
    found: dict[str, str] = {}
    for spec, facts in _methods(folders):
        if isinstance(facts.get("variant"), str):
            found.setdefault(plain(spec, 200), plain(facts["variant"], 200))
    return found


def _methods(folders: Sequence[Path]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each run says of its methods, by spec."""
    for folder in folders:
        if (file := folder / "methods.json").is_file():
            yield from read_json(file)["methods"].items()


def manifest_in(folder: Path) -> Manifest:
    """The list of a run's records; empty if it cannot be read, since no score of a board depends on it."""
    with suppress(EnvironmentProblem):
        if (found := manifest.read(folder)) is not None:
            return found
    return Manifest(folder, (), ())


def versions_of(folder: Path) -> list[dict[str, str]]:
    """The versions with which the records of a run were made, each combination once."""
    listed = manifest_in(folder)
    found = (Record(listed.out / "records" / one.record).read("env") or {} for one in listed.trainings)
    texts = [{key: plain(one[key], 200) for key in VERSIONS if one.get(key) not in (None, "")} for one in found]
    return [one for place, one in enumerate(texts) if one and one not in texts[:place]]


def _run(folder: Path) -> dict[str, Any]:
    about = ending_of(folder)
    return {
        **_began(folder, [path.name for path in plugins_in(folder)], about.get("model")),
        "facts": _facts(about, ("state", "model", "match_on", "match_phase", "finished")),
        "environments": versions_of(folder),
        "warnings": list(map(plain, about.get("warnings") or ())),
        "failures": list(map(plain, about.get("failures") or ())),
    }


def _of_entry(entry: Entry) -> dict[str, Any]:
    made_by = {
        key: "; ".join(value) if isinstance(value, list) else value for key, value in entry.about.shown().items()
    }
    return {
        **_began(entry.folder, entry.about.plugins, entry.config.get("model")),
        "facts": {
            **_facts(entry.config, ("model", "match_on", "match_phase")),
            **_facts({"submitted": entry.about.submitted, **made_by, "status": entry.about.status}),
        },
        "environments": [
            {plain(key, 40): plain(text, 200) for key, text in one.items()} for one in entry.about.versions
        ],
        "warnings": list(map(plain, entry.warnings)),
        "failures": [],
    }


def _began(folder: Path, plugins: Sequence[str], model: Any) -> dict[str, Any]:
    """A run's name, command and configuration; the command has no folders of plugins and models."""
    name, config = plain(folder.name, 100), folder / "config.yaml"
    options = [f"--plugin {plain(Path(text).name, 100)}" for text in plugins]
    # Neither a hub id nor registered, by us or by a plugin: the name of a folder or file.
    if model and not plugins and not is_hub_id(str(model)) and model not in registry.names("models"):
        options.append("--model MODEL")
    return {
        "name": name,
        "command": " ".join([f"adaptive-bench run --config {name}/config.yaml", *options]),
        "config": block(config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""),
    }


def _facts(values: Mapping[str, Any], keys: Iterable[str] | None = None) -> dict[str, str]:
    keys = values if keys is None else keys
    return {key.replace("_", " "): plain(values[key], 200) for key in keys if values.get(key) not in (None, "")}


def headroom(folders: Sequence[Path], tasks: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs of one of the tasks and a sentence from outside, or of a record's file name and why it cannot be read."""
    for folder in folders:
        try:
            found = [(task, text) for task, text in read_headroom(folder) if task in tasks]
        except Rejected as why:
            found = [(f"{folder.name}/{HEADROOM}", f"Left out: {why}.")]
        yield from found
