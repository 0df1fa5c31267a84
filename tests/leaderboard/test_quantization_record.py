"""What docs/quantization.md says of the nano model is what its record says."""

import json
from pathlib import Path

from adaptive_bench.leaderboard.paper import form_of, paper_tables
from adaptive_bench.leaderboard.row import Row, checked

ROOT = Path(__file__).parents[2]
TASKS, FORMS, LEVELS = ("nano_math", "nano_qa", "nano_qa_ll"), ("", "int8", "int4", "nf4"), (0.0, 0.15, 0.25)
PLACES = [("dense", 0.0), *(("gateskip", level) for level in LEVELS)]


def record():
    known = json.loads((ROOT / "docs/records/nano_quantization.json").read_text(encoding="utf-8"))
    return [Row(**checked(row)) for row in known["rows"]]


def by_place(rows, axis="tokens"):
    return {(row.task, form_of(row), row.method, row.level): row for row in rows if row.axis == axis}


def table(rows):
    """The table of the page: scores with intervals, and kB that a written token reads."""
    known = by_place(rows)
    lines = [
        "| task | weights | `dense` | `gateskip`, 0 % | 15 % | 25 % | kB/token |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for form in FORMS:
            found = [known[task, form, *place] for place in PLACES]
            scores = [f"{100 * row.score:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]" for row in found]
            read = " / ".join(f"{row.bytes_per_token / 1e3:.0f}" for row in found if row.bytes_per_token is not None)
            lines.append(f"| {task} | {form or 'fp32'} | {' | '.join(scores)} | {read} |")
    return "\n".join(lines)


def test_the_table_of_the_page_is_that_of_the_record():
    assert table(record()) in (ROOT / "docs/quantization.md").read_text(encoding="utf-8")


def test_what_is_said_beside_the_papers_table_is_that_of_the_record():
    page = (ROOT / "docs/quantization.md").read_text(encoding="utf-8")
    known = by_place(record())
    (table,) = [one for one in paper_tables() if one["table"] == 7]
    theirs = {row["name"]: [float(text.partition(" ± ")[0]) for text in row["values"]] for row in table["rows"]}
    whole, small = theirs["32-bit + GateSkip"], theirs["4-bit + GateSkip"]
    start, groups = 0, {"Generative Benchmarks": TASKS[:2], "Log-Likelihood Benchmarks": TASKS[2:]}
    for group, count in table["groups"]:
        columns = range(start, start := start + count)

        def mean(form, level, tasks=groups[group]):
            return sum(known[task, form, "gateskip", level].score for task in tasks) / len(tasks)

        asked = [(at, level) for at in columns if (level := table["asks"][at][1]) in LEVELS]
        name = group.partition(" ")[0].lower()
        for form in FORMS[1:]:
            kept = " / ".join(f"{100 * mean(form, level) / mean('', level):.3g}" for _, level in asked)
            paper = " / ".join(f"{100 * small[at] / whole[at]:.3g}" for at, _ in asked)
            assert f"| {name} | {form} | {kept} | {f'{paper} ' if form != 'int8' else ''}|" in page
