"""The page of the paper's tables shows what the runs whose records lie beside it say of them."""

from functools import cache
from pathlib import Path

import pytest

from adaptive_bench.cli.paper import Form, _shown
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.paper_beside import beside_board

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs/records/nano_paper"  # an entry for each experiment of the paper
TASKS = ("nano_math", "nano_qa")
PAGE = (ROOT / "docs/paper_tables.md").read_text(encoding="utf-8")
# Table -> the runs that it is made of.
RUNS = {
    **dict.fromkeys((1, 2, 5, 13), ("methods",)),
    4: ("out_of_domain",),
    6: ("methods", "qwen3"),
    9: ("pruning", "pruned"),
    10: ("latency",),
    11: ("text",),
}


@cache  # it takes seconds to read
def _board(*runs):
    return read_board([RECORDS / run / "table.json" for run in runs])


@pytest.mark.parametrize("number", RUNS)
def test_each_table_is_that_of_its_runs(number):
    (found,) = beside_board(_board(*RUNS[number]), number)
    expected = _shown(found, Form.markdown)
    assert f"\n{expected}\n" in PAGE, f"docs/paper_tables.md is to have:\n{expected}"


def _costs():
    """What 15 % saved tokens come to in net FLOPs, of the nano model and of a model of the paper's shape with the same
    decisions; the dearest method first.
    """
    rows = [row for row in _board("methods").rows if (row.axis, row.phase, row.level) == ("tokens", "all", 0.15)]
    found = {}
    for row in rows:
        if row.score is not None and row.task in TASKS and row.metric.endswith("strict-match"):
            found.setdefault(row.label, {})[row.task] = row
    whole = {label: [by_task[task] for task in TASKS] for label, by_task in found.items() if len(by_task) == len(TASKS)}
    lines = []
    for label, both in sorted(whole.items(), key=lambda one: sum(row.saved_net for row in one[1])):
        assert {row.projected_shape for row in both} == {"llama-3.2-1b"}
        shares = [row.saved_net for row in both] + [row.projected_net for row in both]
        lines.append(f"| `{label}` | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |")
    head = [*TASKS, *(f"{task}, Llama 3.2 1B's shape" for task in TASKS)]
    return "\n".join([f"| method | {' | '.join(head)} |", "|---" * 5 + "|", *lines])


def test_what_saved_tokens_cost_is_that_of_its_run():
    assert f"\n\n{_costs()}\n\n" in PAGE, f"docs/paper_tables.md is to have:\n{_costs()}"
