"""The capability matrix: what each method can do, found out by the checks and never declared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from adaptive_bench import output
from adaptive_bench.probed import CAPABILITIES, Matrix
from adaptive_bench.testing.check import Fact, Result


def capability_matrix(results: Iterable[Result]) -> Matrix:
    """Capabilities of each spec; where families disagree the value names those that stand out."""
    by_spec: dict[str, list[Result]] = {}
    for result in results:
        by_spec.setdefault(result.spec, []).append(result)
    return {spec: _row(found) for spec, found in by_spec.items()}


def _row(results: list[Result]) -> dict[str, str]:
    families = list(dict.fromkeys(result.family for result in results))
    failing = {result.family for result in results if result.status == "failed"}
    row = {"families": ", ".join(family for family in families if family not in failing) or "none"}
    for capability in CAPABILITIES[1:]:
        values = {
            result.family: _text(result.facts[capability.key]) for result in results if capability.key in result.facts
        }
        if not values:
            row[capability.key] = "-"
        elif len(set(values.values())) == 1:
            row[capability.key] = next(iter(values.values()))
        else:
            row[capability.key] = ", ".join(f"{value} ({family})" for family, value in values.items())
    return row


def _text(fact: Fact) -> str:
    return fact if isinstance(fact, str) else "yes" if fact else "no"


def write_matrix(path: Path, matrix: Mapping[str, Mapping[str, str]], *, whole: bool = True) -> None:
    """Write a matrix as JSON, specs in order.

    Args:
        whole: Forget what the file knows of other specs; else it is kept.
    """
    if not whole and path.is_file():
        matrix = dict(sorted((json.loads(path.read_text(encoding="utf-8")) | matrix).items()))
    output.write_text(path, json.dumps(matrix, indent=1, ensure_ascii=False) + "\n")
