"""Are the scores and savings of a measured point what its samples and raw counts give? Asked whenever a table is made,
so that no number stands in it that only one file claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adaptive_bench.engine.ledger import saved_shares, totals
from adaptive_bench.errors import EnvironmentProblem, one_line
from adaptive_bench.metric import metric_of
from adaptive_bench.store.count_laws import broken_laws
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.tables.document_values import is_pooled, pooled_value

_ROUNDING = 1e-9  # another machine sums in another order


def check_point(evaluation: Evaluation, samples: Sequence[Sample], where: Path) -> None:
    """Make the numbers of a point again. Metrics that are neither a mean over documents nor pooled over their texts
    cannot be, and stand as they are; so do the time a point took and the saving its dial claims.

    Args:
        where: The record, for the error.

    Raises:
        EnvironmentProblem: One is not what the samples or the counts give.
    """
    compared: list[tuple[str, Any, float | None]] = [("documents", evaluation.docs, len(samples))]
    for metric, score in evaluation.scores.items():
        if is_pooled(metric):
            if (made := pooled_value(metric, samples)) is not None:
                compared.append((metric, score, made))
            continue
        values = [one.scores[metric] for one in samples if metric in one.scores]
        if values and metric_of(metric).is_mean:
            compared.append((metric, score, fmean(values)))
    wrong = list(broken_laws(evaluation.report["counts"]))
    if not wrong:
        compared += _counted(evaluation)
    wrong += [f"{name} {said!r}, made again {made!r}" for name, said, made in compared if not _same(said, made)]
    if wrong:
        raise EnvironmentProblem(
            f"The numbers of a measured point are those that its samples and counts give, but in {str(where)!r} at the "
            f"dial value {evaluation.dial:g} there is {one_line('; '.join(wrong), 300)}. The record was changed: "
            f"remove that folder and give the same `adaptive-bench run` again."
        )


def _counted(evaluation: Evaluation) -> Iterator[tuple[str, Any, float | None]]:
    """What its report says, and what its counts come to: by name, as said, made again."""
    report = evaluation.report
    counted = saved_shares(report["counts"])
    claims = [("savings", evaluation.savings, counted["saved"])]
    claims += [(part, report[part], shares) for part, shares in counted.items()]
    sums = totals(report["counts"])
    claims += [("macs", report.get("macs", {}), sums["macs"])]
    for part, said, shares in claims:
        yield from ((f"{part} {axis}", said.get(axis), share) for axis, share in shares.items())
    sites = report.get("sites", [])
    yield "sites", len(sites), len(sums["sites"])
    for said, made in zip(sites, sums["sites"], strict=False):
        named = f"{made['branch']} of layer {made['layer']}"
        yield f"executed of {named}", said.get("executed"), made["executed"]
        yield f"a site, {named}", (said.get("layer"), said.get("branch")) == (made["layer"], made["branch"]), True


def _same(said: Any, made: float | None) -> bool:
    if made is None or not isinstance(said, int | float):
        return said is made
    return math.isclose(said, made, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
