"""`leaderboard submit`: a finished run as an entry, checked by the same rules that let it into a board."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic, manifest
from adaptive_bench.store.packing import pack, pack_run
from adaptive_bench.store.results import PACKED_RECORDS, TABLES
from adaptive_bench.store.run_files import check_files, is_entry, is_run, plugins_in, run_command
from adaptive_bench.strict_yaml import read_mapping

from .answers import read_answers
from .claims import OF_A_MACHINE, OF_A_WATCH, config_text
from .entry import DERIVED, FILE_NAME, FILES, SCHEMA, check_run, check_size, digest_of
from .evidence import Evidence, examine
from .headroom import FILE_NAME as HEADROOM
from .headroom import for_entry
from .identity import asked_of
from .plain import plain
from .provenance import records_of, versions_of
from .row import Row
from .rows import Rejected, checked, read_json
from .steps import FILE_NAME as STEPS
from .steps import read_steps

_OF_A_RUN = ("state", "methods", "tasks", "model", "seeds", "match_on", "match_phase")


def submit(run: Path, entries: Path, *, about: Mapping[str, Any], with_records: bool = False) -> Path:
    """Write a run as an entry: a new folder of `entries` with the run's name.

    Args:
        about: Who made it, see `identity`.
        with_records: Put the run's records into it, without weights: whoever unpacks them makes the table again, or
            goes on with more seeds and methods. Table and answers are left out then, as a board makes them of the
            records.

    Nothing of the machine goes along: no path, no name of a machine, no log.

    Raises:
        UsageError: It is no run, or is too large, or there is such an entry already.
        EnvironmentProblem: The run is not finished, not complete, has no answers, or breaks a rule.
    """
    if not is_run(run) or is_entry(run):
        what = "an entry already" if is_entry(run) else "none"
        raise UsageError(
            f"An entry is made of a run, but {str(run)!r} is {what}. `adaptive-bench list runs` shows the runs."
        )
    check_files(run)
    target = entries / run.resolve().name
    if target.exists():
        raise UsageError(f"An entry is never changed, but {str(target)!r} exists. Remove it first, or keep it.")
    try:
        contents = _contents(run, with_records=with_records)
        if with_records:
            contents = {name: one for name, one in contents.items() if name not in DERIVED} | _records(run)
    except Rejected as why:
        raise EnvironmentProblem(
            f"An entry must pass the checks of a board, but of {str(run)!r} it is said: {why}. Give the run's command "
            f"again (nothing is computed twice), then submit it."
        ) from why
    said = asked_of(about, read_mapping(run / "config.yaml").get("methods", ()))
    try:
        derived = sum(len(content) for name, content in contents.items() if name in DERIVED)
        check_size(sum(map(len, contents.values())) - derived, derived)
    except Rejected as why:
        raise UsageError(
            f"{str(run)!r} is too large: {why}. "
            f"{'' if with_records else 'With --records it is smaller: its table is made of them. '}"
            f"Submit runs of fewer methods, tasks or documents each."
        ) from why
    entry = {
        "schema": SCHEMA,
        "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
        "adaptive_bench": version("adaptive-bench"),
        "environments": versions_of(run),
        "about": said,
        "plugins": [path.name for path in plugins_in(run)],
        "files": {name: digest_of(content) for name, content in contents.items()},
    }
    with atomic.new_folder(target) as folder:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        atomic.write_json(folder / FILE_NAME, entry)
        _hold(folder, run)
    return target


def _hold(entry: Path, run: Path) -> None:
    """Refuse an entry that a board would refuse."""
    try:
        examine(entry)
    except Rejected as why:
        raise EnvironmentProblem(
            f"A board takes an entry that holds, but of {str(run)!r} it is said: {why}. Give the "
            f"run's command again (nothing is computed twice), then submit it."
        ) from why


def _records(run: Path) -> dict[str, bytes]:
    listed = manifest.read(run)
    return {PACKED_RECORDS: pack_run(listed) if listed is not None and listed.seals else pack(records_of(run))}


def _contents(run: Path, *, with_records: bool) -> dict[str, bytes]:
    """The files of an entry by name."""
    missing = [name for name in FILES if not (run / name).is_file()]
    if missing:
        raise Rejected(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    about: Any = read_json(run / "run.json")
    if not isinstance(about, dict) or about.get("state") != "done":
        raise Rejected("an entry is of a run that is done, with nothing failed")
    for name in TABLES:
        check_run(run / name)
    rows = read_json(run / "table.json")
    if not isinstance(rows, list) or not rows:
        raise Rejected("a table is a list of rows")
    for number, row in enumerate(rows):
        try:
            checked(row)
        except Rejected as why:
            raise Rejected(f"row {number}: {why}") from why
    read_answers(run)
    steps = read_steps(run, (Row.of(checked(row)) for row in rows))
    config = _without_machine(read_mapping(run / "config.yaml"))
    said = {key: about[key] for key in _OF_A_RUN if key in about} | {"model": config["model"]}
    if not with_records:
        said |= {"warnings": [plain(text) for text in about.get("warnings", [])]}
    said |= {"records": [folder.name for folder in records_of(run)]}
    measured = {HEADROOM: for_entry(run / HEADROOM)} if (run / HEADROOM).is_file() else {}
    return measured | {
        "table.json": (json.dumps(rows, allow_nan=False, separators=(",", ":")) + "\n").encode(),
        "answers.json": (run / "answers.json").read_bytes(),
        "methods.json": (json.dumps({"methods": read_json(run / "methods.json")["methods"]}, indent=2) + "\n").encode(),
        "run.json": (json.dumps(said, indent=2, allow_nan=False) + "\n").encode(),
        "config.yaml": config_text(config),
        **({} if steps is None else {STEPS: (run / STEPS).read_bytes()}),
        **({manifest.PACKED: manifest.packed(run)} if (run / manifest.FILE).is_file() else {}),
    }


def _without_machine(config: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in (*OF_A_MACHINE, *OF_A_WATCH)}
    if PurePath(str(found.get("model", ""))).is_absolute():
        found["model"] = PurePath(found["model"]).name
    return found


class Claims(NamedTuple):
    """What `verify` holds an entry (or run) to: its configuration, its answers and, of an entry, what is behind it."""

    config: dict[str, Any]
    answers: list[dict[str, Any]]
    evidence: Evidence | None


def claims_of(folder: Path) -> Claims:
    """What an entry (or run) says, after all checks: of an entry those of a board.

    Raises:
        UsageError: It is none.
        EnvironmentProblem: It breaks a rule.
    """
    from_entry = is_entry(folder)
    if not (from_entry or is_run(folder)):
        raise UsageError(
            f"What is verified is an entry, which has an {FILE_NAME}, or a run, which has a config.yaml, but "
            f"{str(folder)!r} has neither. Name a folder that `adaptive-bench leaderboard submit` wrote, or a run of "
            f"`adaptive-bench list runs`."
        )
    try:
        made_again = from_entry and (folder / PACKED_RECORDS).is_file()
        needed = ("config.yaml",) if made_again else ("table.json", "answers.json", "config.yaml")
        if missing := [name for name in needed if not (folder / name).is_file()]:
            raise Rejected(f"{', '.join(missing)} missing")
        if from_entry:
            evidence = examine(folder)
            return Claims(dict(read_mapping(folder / "config.yaml")), list(evidence.answers["sweeps"]), evidence)
        read_answers(folder)
        return Claims(dict(read_mapping(folder / "config.yaml")), read_json(folder / "answers.json")["sweeps"], None)
    except Rejected as why:
        what, mend = (
            ("An entry holds what `leaderboard submit` writes", "Fetch it again, or name another folder.")
            if from_entry
            else ("A finished run has its table beside what made it", f"To write both: `{run_command(folder)}`.")
        )
        raise EnvironmentProblem(f"{what}, but of {str(folder)!r} it is said: {why}. {mend}") from why
