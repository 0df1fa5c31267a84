"""The capability matrix as `list methods` shows it: what tells methods apart as a table, what they share as a line."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.cli.tables import in_parts, wrapped
from adaptive_bench.probed import CAPABILITIES, Capability, Matrix, stored_matrix
from adaptive_bench.spec import MethodSpec


def capability_table(methods: Sequence[str]) -> str:
    """Table of the methods' plain specs, and of their paper semantics where these differ; empty if none was probed."""
    probed = {name: stored_matrix(name) for name in methods}
    rows: Matrix = {}
    for name, matrix in probed.items():
        for spec, row in matrix.items():
            if not MethodSpec.parse(spec).params and row != rows.get(name):
                rows[spec] = row
    parts = []
    if rows:
        differing = [capability for capability in CAPABILITIES if len(_values(rows, capability)) > 1]
        table = [
            {"": spec} | {_upright(capability): row.get(capability.key, "-") for capability in differing}
            for spec, row in rows.items()
        ]
        shared = [
            f"{capability.title} {_values(rows, capability).pop()}"
            for capability in CAPABILITIES
            if capability not in differing
        ]
        parts.append("What each can do, as found by `adaptive-bench check`:")
        if differing:
            parts.append(in_parts(table))
        if shared:
            of_all = "The same for all: " if len(rows) > 1 else ""
            parts.append(wrapped(f"{of_all}{'; '.join(shared)}."))
    if missing := [name for name, matrix in probed.items() if not matrix]:
        parts.append(wrapped(f"Not probed yet: {', '.join(missing)}. `adaptive-bench check NAME` does it."))
    return "\n\n".join(parts)


def _values(rows: Matrix, capability: Capability) -> set[str]:
    return {row.get(capability.key, "-") for row in rows.values()}


def _upright(capability: Capability) -> str:
    return capability.title.replace(" ", "\n").replace("-", "-\n")
