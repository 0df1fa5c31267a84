"""`leaderboard submit`: writes a finished run as an entry of raw measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import yaml

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.runs.run_table import measured_run
from adaptive_bench.runs.trained import work_of
from adaptive_bench.spec import method_name
from adaptive_bench.store import atomic, entry_files
from adaptive_bench.store.measured import Measurements
from adaptive_bench.store.runs import check_run, ending_of, plugins_in, read_json
from adaptive_bench.tables.comparability import Conditions
from adaptive_bench.validation import read_mapping

from .entry import (
    ABOUT,
    CONFIG,
    HEADROOM,
    METHODS,
    SELF_REPORTED,
    SUMS,
    About,
    Entry,
    headroom_for_entry,
    open_entry,
    read_entry,
    sums_of,
)
from .provenance import versions_of
from .row import Rejected

# Keys of a configuration that describe the machine, or only how the run was watched.
_NOT_PASSED_ON = ("out", "data_dir", "device", "track", "cell_timeout", "stall_warning", "for_models")


def submit(run: Path, entries: Path, *, about: Mapping[str, Any], earlier: Path | None = None) -> Path:
    """Write a run as an entry: a new folder inside `entries` with the run's name.

    Nothing that describes the machine goes into it: no paths, no name of the machine, no logs.

    Args:
        about: Who made it, see `entry.About`.
        earlier: An entry of the same comparison with other seeds, whose measurements the new entry takes in.

    Raises:
        UsageError: The folder is not a run, the entry exists already, `about` lacks something, or `earlier` is not of
            the same comparison.
        EnvironmentProblem: The run is not finished or not complete, or a board would refuse the entry.
    """
    check_run(run)
    target = entries / run.resolve().name
    if target.exists():
        raise UsageError(f"An entry is never changed, but {str(target)!r} exists. Remove it first, or keep it.")
    if ending_of(run).get("state") != "done":
        raise EnvironmentProblem(
            f"Only a run that finished without failures can be submitted, which {str(run)!r} did not. Give its command "
            f"again (nothing is computed twice), then submit it."
        )
    config, methods = _without_machine(read_mapping(run / CONFIG)), read_json(run / METHODS)["methods"]
    # `perplexity:/home/me/text.jsonl`: nobody else could measure that.
    named = [*config.get("tasks", ()), *(config.get("train_on") or ())]
    if of_a_machine := [task for task in named if PurePath(task.partition(":")[2]).is_absolute()]:
        raise UsageError(
            f"Others need the data of an entry's tasks, but {of_a_machine[0]!r} is a path on this machine. Put the "
            f"file into the folder of --data-dir, name the task by its name there, and give the run's command again."
        )
    said = _checked_about(about, config.get("methods", ()))
    said |= {"versions": versions_of(run), "plugins": [path.name for path in plugins_in(run)]}
    measured, homes = measured_run(work_of(run)), [run]
    if earlier is not None:
        known = open_entry(earlier)
        measured = _joined(known, config | {"licence": said["licence"]}, methods, measured)
        config |= {"model": known.config["model"], "seeds": [*known.config["seeds"], *config["seeds"]]}
        said = known.about.shown() | said
        for name in ("authors", "versions", "plugins"):
            before = getattr(known.about, name)
            said[name] = [*before, *(one for one in said[name] if one not in before)]
        homes.append(earlier)
    said |= {"status": SELF_REPORTED, "submitted": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        # The folder appears under its name only when the block ends, so an entry that is refused leaves nothing behind.
        with atomic.new_folder(target) as folder:
            entry_files.write(folder, measured)
            (folder / ABOUT).write_text(yaml.safe_dump(said, sort_keys=False, allow_unicode=True), encoding="utf-8")
            (folder / CONFIG).write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
            (folder / METHODS).write_text(json.dumps({"methods": methods}, indent=2) + "\n", encoding="utf-8")
            if (found := next((home for home in homes if (home / HEADROOM).is_file()), None)) is not None:
                (folder / HEADROOM).write_bytes(headroom_for_entry(found / HEADROOM))
            # After all files that it lists, and before the entry is read as the board will read it.
            (folder / SUMS).write_text(sums_of(folder), encoding="utf-8")
            read_entry(folder)
    except Rejected as why:
        raise EnvironmentProblem(
            f"A board must be able to read an entry, but it refuses that of {str(run)!r}: {why}. Give the run's "
            f"command again (nothing is computed twice), then submit it."
        ) from why
    return target


def _joined(known: Entry, config: Mapping[str, Any], methods: Mapping[str, Any], ours: Measurements) -> Measurements:
    """The measurements of an entry and of a run of the same comparison with other seeds.

    Raises:
        UsageError: They have a seed in common, or differ in what was compared.
    """
    if both := [str(seed) for seed in config["seeds"] if seed in known.config["seeds"]]:
        raise UsageError(
            f"An entry takes in seeds that it does not have, but {str(known.folder)!r} has seed {', '.join(both)} of "
            f"this run. Run other seeds alone: `--seeds 2,` with its comma is seed 2 and no other."
        )
    # What these mean is compared below: a model may be called otherwise on another machine.
    theirs = {**known.config, "licence": known.about.licence}
    keys = [key for key in {**theirs, **config} if key not in ("model", "preset", "seeds")]
    apart = [key for key in keys if theirs.get(key) != config.get(key)]
    # Code, documents and measured sites may have changed under the same configuration.
    facts = read_json(known.folder / METHODS)["methods"]
    apart += [f"the code of {spec}" for spec in methods if methods[spec]["code"] != facts.get(spec, {}).get("code")]
    there, here = (
        {(one.task, one.split, one.method, one.levels, one.eligible, Conditions(**one.conditions)) for one in sweeps}
        for sweeps in (known.measured.sweeps, ours.sweeps)
    )
    apart += [f"weights, recipe, documents or sites of {task}" for task in sorted({task for task, *_ in there ^ here})]
    if apart:
        raise UsageError(
            f"The seeds of an entry are of one comparison, but {str(known.folder)!r} and this run differ in "
            f"{', '.join(apart)}. Make the run with `--config {known.folder / CONFIG}` and the versions that its "
            f"{ABOUT} names, or submit it without --with."
        )
    trainings = {one.key: one for one in (*known.measured.trainings, *ours.trainings)}
    return Measurements([*known.measured.sweeps, *ours.sweeps], list(trainings.values()))


def _checked_about(values: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """What the author says about the entry, checked."""
    wanted = (
        "--about FILE is a YAML file with authors (a list), licence (such as CC-BY-4.0) and, optionally, "
        "affiliation, links to paper, code and plugin, and package (name==version). For methods of this package, "
        "--authors 'A. Name; B. Name' and --licence CC-BY-4.0 are enough."
    )
    try:
        found = About.of(values).shown()
    except Rejected as why:
        raise UsageError(f"An entry says who made it and how it may be used, but {why}. {wanted}") from why
    here = set(map(method_name, methods)) & {*registry.names("methods")}
    foreign = sorted(name for name in here if registry.is_foreign("methods", name))
    if foreign and not {"plugin", "package"} & found.keys():
        raise UsageError(
            f"An entry must say where others get methods that are not of this package, but it names no plugin or "
            f"package for {', '.join(foreign)}. {wanted}"
        )
    return found


def _without_machine(config: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in _NOT_PASSED_ON}
    if PurePath(str(found.get("model", ""))).is_absolute():
        found["model"] = PurePath(found["model"]).name
    return found
