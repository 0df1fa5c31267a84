"""What commands print with `--json`, as JSON Schema (draft 2020-12): `adaptive-bench list schemas`.

Each schema is taken from a type: a dataclass that the output is made of, or a `TypedDict` in this folder. A key that
the type does not name may not be there, and each that it names is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from adaptive_bench import registry
from adaptive_bench.cli.waiting import waiting
from adaptive_bench.errors import UsageError, one_line

if TYPE_CHECKING:
    from adaptive_bench.cli.schemas.listing import SchemaRow

_HERE = "adaptive_bench.cli.schemas"


@dataclass(frozen=True)
class Printed:
    """What a command prints.

    Attributes:
        command: The command, with the options that lead to this output.
        description: What it is, in one line.
        module, type_name: Where the type is.
        is_list: Whether a list of it is printed.
    """

    command: str
    description: str
    module: str
    type_name: str
    is_list: bool = True


def _row(what: str, description: str, type_name: str) -> Printed:
    return Printed(f"list {what} --json", description, f"{_HERE}.listing", type_name)


SCHEMAS: Mapping[str, Printed] = {
    "list-methods": _row("methods", "methods, with their parameters", "MethodRow"),
    "list-methods-model": _row("methods --model MODEL", "what each method adds to a model", "OverheadRow"),
    "list-tasks": _row("tasks", "tasks and groups of tasks", "TaskRow"),
    "list-models": _row("models", "models that have a name", "NamedRow"),
    "list-families": _row("families", "families of models", "NamedRow"),
    "list-configs": _row("configs", "configs", "NamedRow"),
    "list-runs": _row("runs", "runs, the newest first", "RunRow"),
    "list-keys": _row("keys", "keys of a config", "KeyRow"),
    "list-schemas": _row("schemas", "these schemas", "SchemaRow"),
    "status": Printed(
        "status --json", "trainings and evaluations with their state", "adaptive_bench.store.overview", "RecordStatus"
    ),
    "samples": Printed(
        "samples RUN --json", "documents with every method's answer", "adaptive_bench.cli.samples", "Document"
    ),
    "verify": Printed(
        "leaderboard verify ENTRY --json",
        "points of an entry, measured again",
        "adaptive_bench.runs.outcome.verification",
        "Checked",
    ),
    "verify-from-records": Printed(
        "leaderboard verify ENTRY --from-records --json",
        "whether a table is what its records give",
        f"{_HERE}.verification",
        "Rederivation",
        is_list=False,
    ),
    "time": Printed("time --json", "timings of methods", f"{_HERE}.timing", "TimingRecord"),
    "speculate": Printed(
        "speculate RUN --tasks TASKS --json",
        "self-speculative decoding beside greedy decoding",
        f"{_HERE}.speculation",
        "SpeculationRecord",
        is_list=False,
    ),
    "headroom": Printed(
        "headroom MODEL --tasks TASKS --json",
        "oracles, best static sets, sensitive sites",
        f"{_HERE}.headroom",
        "HeadroomRecord",
        is_list=False,
    ),
    "generate": Printed(
        "generate RUN --json", "texts and the compute report", f"{_HERE}.generation", "Generation", is_list=False
    ),
    "inspect": Printed(
        "inspect RUN --json", "what methods skip, token by token", f"{_HERE}.inspection", "Inspection", is_list=False
    ),
    "inspect-paper": Printed(
        "inspect RUN --tasks TASKS --paper --json",
        "the gate analysis of the GateSkip paper",
        f"{_HERE}.inspection",
        "GateAnalysis",
        is_list=False,
    ),
    "check": Printed(
        "check METHOD --json", "results of the conformance suite", f"{_HERE}.conformance", "Conformance", is_list=False
    ),
}


def schema_rows() -> list[SchemaRow]:
    """A row for each schema; no type is imported."""
    return [
        {"name": name, "command": f"adaptive-bench {one.command}", "description": one.description}
        for name, one in SCHEMAS.items()
    ]


def json_schema(name: str) -> dict[str, Any]:
    """The schema of what a command prints.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in SCHEMAS:
        raise UsageError(
            f"`list schemas NAME` takes one of `list schemas`, got {one_line(name, 60)!r}. "
            f"{registry.did_you_mean(name, SCHEMAS)}"
        )
    from adaptive_bench.cli.schemas.generator import schema_of

    one = SCHEMAS[name]
    with waiting(f"Loading the types of {name}"):  # some of it needs PyTorch
        kind: Any = getattr(import_module(one.module), one.type_name)
    about = {"title": name, "description": f"What `adaptive-bench {one.command}` prints: {one.description}."}
    return schema_of(list[kind] if one.is_list else kind, about)
