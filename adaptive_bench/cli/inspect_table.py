"""What `adaptive-bench inspect` found as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.tables import wrapped

_AGREES = {True: "yes", False: "no", None: "in part, or not known"}


def shown(record: Mapping[str, Any]) -> str:
    """For each method skip rates by kind of token at every saving."""
    texts = f" of {record['texts']} texts" if record["texts"] > 1 else ""
    parts = [paragraph(f"{record['name']}, {record['about']}: {record['tokens']} tokens{texts}. Skipped, in %:")]
    parts += [_rates(one) for one in record["methods"]]
    parts.append(paragraph("-o page.html shows the text with every decision."))
    return "\n\n".join(parts)


def _rates(method: Mapping[str, Any]) -> str:
    points = method["points"]
    first = next(iter(points.values()))
    whole = int(sum(count for count, *_ in first["by_part"].values()))
    lines = [["all", str(whole), *(f"{100 * one['saved']:.1f}" for one in points.values())]]
    for group in ("by_part", "by_kind"):
        for name, (count, *_) in first[group].items():
            rates = (f"{50 * sum(one[group][name][1:]):.1f}" for one in points.values())
            lines.append([name, str(int(count)), *rates])
    return _table([method["spec"], "tokens", *(f"{100 * float(saving):g}" for saving in points)], lines)


def _table(header: list[str], lines: list[list[str]]) -> str:
    sides = ("left", *["right"] * (len(header) - 1))
    return str(tabulate(lines, header, tablefmt="simple", disable_numparse=True, colalign=sides))


def paper_shown(record: Mapping[str, Any]) -> str:
    """The paper's statements, each with ours and whether they agree; then the tokens with the highest gates."""
    about = f"{record['name']}, {', '.join(record['tasks'])}: {record['texts']} texts, {record['tokens']} tokens."
    parts = [paragraph(f"{record['source']} beside {about}")]
    for method in record["methods"]:
        parts.append(f"{method['spec']}")
        for one in method["statements"]:
            lines = (
                f"  {one['place']}: {one['paper']}",
                f"    ours: {one['ours']}",
                f"    agrees: {_AGREES[one['agrees']]}",
            )
            parts.append("\n".join(wrapped(line, indent="      ") for line in lines))
        for saving, items in method["top"].items():
            body = [
                [str(place), name, str(count), f"{value:.4f}"] for place, (name, count, value) in enumerate(items, 1)
            ]
            title = f"Highest mean gates at {100 * float(saving):g} % asked"
            parts.append(f"{title}\n{_table(['', 'token', 'times', 'gate'], body)}")
    return "\n\n".join(parts)
