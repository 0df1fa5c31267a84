"""What `adaptive-bench inspect` found as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from adaptive_bench.cli.failures import paragraph

_NONE = "n/a"


def shown(record: Mapping[str, Any]) -> str:
    """For each method skip rates by kind of token at every saving, then agreement where the page begins."""
    texts = f" of {record['texts']} texts" if record["texts"] > 1 else ""
    parts = [paragraph(f"{record['name']}, {record['about']}: {record['tokens']} tokens{texts}. Skipped, in %:")]
    parts += [_rates(one) for one in record["methods"]]
    saving = f"{record['first_saving']:g}"
    parts.append(f"Agreement at {100 * record['first_saving']:g} % asked:\n{_agreement(record['agreement'][saving])}")
    parts.append(
        paragraph(
            "kappa: agreement beyond chance, counted site by site. The oracle knows when a token's prediction stays "
            "what it is. -o page.html shows the text with every decision."
        )
    )
    return "\n\n".join(parts)


def _rates(method: Mapping[str, Any]) -> str:
    points = method["points"]
    first = next(iter(points.values()))
    lines = [["asked", "", *(f"{100 * float(saving):g}" for saving in points)]]
    lines.append(["all", sum(one[0] for one in first["by_part"].values()), *(f"{100 * one['saved']:.1f}" for one in points.values())])
    for group in ("by_part", "by_kind"):
        for name, (count, *_) in first[group].items():
            lines.append([name, int(count), *(f"{50 * sum(one[group][name][1:]):.1f}" for one in points.values())])
    head, *body = lines
    return tabulate(body, [method["spec"], "tokens", *head[2:]], tablefmt="simple", disable_numparse=True, stralign="right", colalign=("left",))


def _agreement(found: list[Mapping[str, Any]]) -> str:
    def number(value: float | None) -> str:
        return _NONE if value is None else f"{value:.2f}"

    body = [
        [f"{one['one']} and {one['other'] or 'its own oracle'}", f"{100 * one['alike']:.1f}", number(one["kappa"])]
        for one in found
    ]
    return tabulate(body, ["", "alike %", "kappa"], tablefmt="simple", disable_numparse=True, colalign=("left", "right", "right"))
