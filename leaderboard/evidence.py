"""What stands behind the rows of an entry: its records make them again here, or it is its author's word.

An entry that does not hold is refused as a whole: whoever changed one value may have changed others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, message_of
from adaptive_bench.probed import stored_matrix
from adaptive_bench.source import code_of
from adaptive_bench.spec import method_name
from adaptive_bench.store.results import ENTRY, PACKED_RECORDS
from adaptive_bench.store.schema import SCHEMA as RUN_SCHEMA
from adaptive_bench.strict_yaml import read_mapping

from . import derived, verified
from .claims import check_records_dates, check_run_json, submitted
from .entry import check, migrated
from .forms import check_forms
from .grid import COSTS
from .headroom import check_headroom
from .held import (
    check_answers,
    check_environments,
    check_methods,
    check_scores,
    check_table,
)
from .identity import identity_of
from .plain import plain
from .row import Row
from .rows import COLUMNS, Rejected, checked, only_once, place_of, read_json, spec_of
from .steps import read_steps

SELF_REPORTED = "self-reported"  # the author's word: the entry has no records
# Every value was made again of its records by whoever built the board: of the scores of documents that are in them, or
# of what was written, which was scored again.
UNSCORED = "re-derived, not scored again"
REDERIVED = "re-derived"
# As re-derived, and a point of the row's method and task was measured again and agrees: with the code of whoever builds
# the board, which measured the row too or another version of it did; or only ever with another version.
REPRODUCED = "reproduced"
REPRODUCED_NOW = "reproduced by the present code"
REPRODUCED_EARLIER = "reproduced by earlier code"
STATES = (SELF_REPORTED, UNSCORED, REDERIVED, REPRODUCED_EARLIER, REPRODUCED_NOW, REPRODUCED)  # the weakest first
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class Evidence:
    """Of an entry that holds.

    Attributes:
        state: `SELF_REPORTED` or `REDERIVED`.
        rows: Its table, checked row by row.
        answers: Plain values as in `answers.json`.
        again: What was measured again, if anything.
        identity: Who made it, see `identity.identity_of`.
        external: By spec what is known of code from elsewhere; methods of this package are not in it.
        unchecked: Specs whose causality class is their author's word: no conformance suite here has probed them.
        recorded: Of one with records, what `recorded` saw in them, and the `warnings` of the table they give.
        unprojected, sealed, unscored: Of one with records, see `runs.rederive.Rederived`.
    """

    state: str
    rows: Sequence[Mapping[str, Any]]
    answers: Mapping[str, Any]
    again: verified.Again | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    external: Mapping[str, str] = field(default_factory=dict)
    unchecked: frozenset[str] = frozenset()
    unprojected: Sequence[str] = ()
    sealed: bool = False
    unscored: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, Any] = field(default_factory=dict)
    codes: Mapping[str, str] = field(default_factory=dict)

    def of_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns `evidence`, `checked` and `external` of one of its rows."""
        spec = spec_of(row)
        state = self._state(spec, str(row["task"]))
        return {"evidence": state, "checked": spec not in self.unchecked, "external": self.external.get(spec)}

    def _state(self, spec: str, task: str) -> str:
        if self.state != REDERIVED or self.again is None or not self.again.agrees(spec, task):
            return UNSCORED if task in self.unscored else self.state
        measured, now = self.codes.get(spec), self._present[spec]
        if now is None or measured == now:  # of a plugin that is not here nobody knows whether its code is another
            return REPRODUCED
        return REPRODUCED_NOW if self.again.code(spec, task) == now else REPRODUCED_EARLIER

    @cached_property
    def _present(self) -> Mapping[str, str | None]:
        """By spec the digest of the code at hand, of which there are few for thousands of rows."""
        return {spec: code_of(method_name(spec)) for spec in set(map(spec_of, self.rows))}

    def said(self) -> str:
        """What stands behind it, as one sentence without its full stop."""
        known = {
            SELF_REPORTED: "self-reported: it has no records, so none of its values could be recomputed",
            REDERIVED: f"re-derived: all {len(self.rows)} rows were recomputed from its records and are the same",
        }[self.state]
        unscored = "".join(
            f"; answers to {plain(task, 100)} were not scored again, as {why}" for task, why in self.unscored.items()
        )
        return known + unscored + ("" if self.again is None else f"; {self.again}{self._moved()}")

    def _moved(self) -> str:
        """How many methods were measured again by code that is not the present one, in words."""
        states = {spec_of(row): self._state(spec_of(row), str(row["task"])) for row in self.rows}
        earlier = sum(state == REPRODUCED_EARLIER for state in states.values())
        return f"; since then the code of {earlier} of its {len(states)} methods has changed" if earlier else ""


def examine(folder: Path) -> Evidence:
    """Hold an entry to its own files, and to its records where it has them.

    Raises:
        Rejected: Something does not hold; the message names the file and, of a value, what it is and what it should be.
    """
    version = check(folder)
    check_forms(folder)
    submitted(folder)  # it is a date
    check_run_json(folder)
    identity = identity_of(read_json(folder / ENTRY)["about"], whole=True)
    has_records = (folder / PACKED_RECORDS).is_file()
    now = _made_again(folder) if has_records else None
    if now is not None:
        check_records_dates(folder, now["recorded"]["since"])
    rows = migrated(_read(folder, "table.json", [] if now is None else now["rows"], list), version)
    only_once(rows)
    for number, row in enumerate(rows):
        try:
            checked(row)
        except Rejected as why:
            raise Rejected(f"row {number} of table.json: {why}") from why
        if unknown := sorted(row.keys() - COLUMNS):
            raise Rejected(f"row {number} of table.json: {plain(unknown[0], 40)!r} is no column of a table")
    metrics: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        metrics[str(row["task"])].add(str(row["metric"]))
    check_headroom(folder, metrics)
    read_steps(folder, (Row.of(checked(row)) for row in rows))
    answers = _read(folder, "answers.json", {"sweeps": []} if now is None else now["answers"], dict)
    facts = _read(folder, "methods.json", {"methods": {}}, dict)
    if version > 2 and "schema" in facts:
        raise Rejected("methods.json: schema is no key of it: entry.json has the version of an entry")
    methods = facts["methods"]
    if now is not None:
        check_table(rows, now)
        rows = _completed(rows, now["rows"])
        check_answers(answers, now["answers"])
        check_environments(read_json(folder / ENTRY).get("environments"), now["environments"])
    else:
        check_scores(rows, answers)
    check_methods(methods, {} if now is None else now["methods"], {spec_of(row) for row in rows})
    again = verified.of_entry(folder, answers, rows)
    sources = {} if now is None else now["sources"]
    external = {spec: _external(spec, sources, identity) for spec in {spec_of(row) for row in rows}}
    return Evidence(
        SELF_REPORTED if now is None else REDERIVED,
        rows,
        answers,
        again,
        identity,
        external={spec: said for spec, said in external.items() if said is not None},
        unchecked=frozenset(
            spec for spec in external if not stored_matrix(method_name(spec)).get(spec, {}).get("causality")
        ),
        unprojected=() if now is None else now["unprojected"],
        sealed=now is not None and now["sealed"],
        unscored={} if now is None else now["unscored"],
        recorded={} if now is None else now["recorded"] | {"warnings": now["warnings"]},
        codes={spec: str(one["code"]) for spec, one in methods.items() if one.get("code") is not None},
    )


def _completed(rows: list[Any], now: list[Any]) -> list[Any]:
    """Rows that hold, with what a token costs where an earlier version did not write it and their records know it.

    Other columns stay away: a mark that the entry was published without would change what is said of it.
    """
    known = {place_of(row): {name: row[name] for name in COSTS.values() if name in row} for row in now}
    return [{**known.get(place_of(row), {}), **row} for row in rows]


def _made_again(folder: Path) -> Mapping[str, Any]:
    try:
        return derived.derive(folder, _config(folder))
    except AdaptiveBenchError as error:
        raise Rejected(plain(f"{PACKED_RECORDS}: {message_of(error)}", _LONGEST_REASON).removesuffix(".")) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A value that no rule looks at before it is computed with: what a stranger wrote ends no build.
        said = f"{PACKED_RECORDS}: it holds a value that no run writes ({type(error).__name__}: {message_of(error)})"
        raise Rejected(plain(said, _LONGEST_REASON)) from error


def _config(folder: Path) -> dict[str, Any]:
    try:
        return dict(read_mapping(folder / "config.yaml"))
    except AdaptiveBenchError as error:
        raise Rejected(plain(f"config.yaml: {message_of(error)}", _LONGEST_REASON).removesuffix(".")) from error


def _read(folder: Path, name: str, otherwise: Any, kind: type) -> Any:
    """A JSON file of the entry; what stands for it where the entry leaves it out."""
    found = read_json(folder / name) if (folder / name).is_file() else otherwise
    is_sound = isinstance(found, kind)
    if is_sound and name == "methods.json":
        is_sound = isinstance(found.get("methods"), dict) and found.keys() <= {"schema", "methods"}
        is_sound &= found.get("schema", 1) in range(1, RUN_SCHEMA + 1)
    if not is_sound:
        raise Rejected(f"{name} does not hold what a run writes")
    return found


def _external(spec: str, sources: Mapping[str, str], identity: Mapping[str, Any]) -> str | None:
    """What is known of a method from elsewhere: package and version, and the digest of the source that its records were
    made with; of a method of this package nothing.
    """
    name = method_name(spec)
    here = name in registry.names("methods")
    if spec not in sources and here and not registry.is_foreign("methods", name):
        return None
    where = identity.get("package") or identity.get("plugin") or "plugin"
    source = f"source {sources[spec]}" if spec in sources else "source not recorded"
    return ", ".join([str(where), source, *(() if here else ("not here",))])
