"""The figures of the documentation, readable and on the pages of their concepts; and the paper's tables."""

import itertools
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from adaptive_bench.cli.leaderboard import paper_text
from adaptive_bench.leaderboard.boards import read_board
from adaptive_bench.leaderboard.paper import beside, paper_tables
from adaptive_bench.method import KVPolicy

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
THERE = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "figures").iterdir()}
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
OF_CONCEPTS = ("concepts", "protocol", "statistics", "headroom", "tuning", "speculation")
SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg):
    return list(ElementTree.fromstring(svg).iter(f"{SVG}text"))


def _words(svg):
    return [element.text for element in _texts(svg)]


def test_every_page_of_concepts_has_a_figure_and_every_figure_is_shown():
    shown = {page: {Path(target).name for _, target in PICTURE.findall(PAGES[f"{page}.md"])} for page in OF_CONCEPTS}
    assert all(shown.values()) and set.union(*shown.values()) == set(THERE)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_no_picture_is_broken_or_without_words(page):
    for words, target in PICTURE.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file()
        assert len(words.split()) > 4, f"{target} needs an alternative text that says what is seen"


@pytest.mark.parametrize("name", THERE)
def test_what_is_drawn_lies_on_the_sheet(name):
    root = ElementTree.fromstring(THERE[name])
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    for text in root.iter(f"{SVG}text"):
        x, y, size = (float(text.attrib[key]) for key in ("x", "y", "font-size"))
        long = 0.56 * size * len(text.text)  # of letters as wide as those of common sans-serif fonts
        left = x - {"start": 0, "middle": long / 2, "end": long}[text.attrib["text-anchor"]]
        assert left >= 0 and left + long <= width and size <= y <= height, text.text
    for one in root.iter(f"{SVG}circle"):
        assert 0 < float(one.attrib["cx"]) < width and 0 < float(one.attrib["cy"]) < height


def _luminance(colour):
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("colour", ["ink", "faint", "accent", "second"])
def test_letters_can_be_read(scheme, colour):
    """Their contrast to what is behind them is at least 4.5 (WCAG 1.4.3), by the one palette of all figures."""
    (style,) = {re.search("<style>(.*)</style>", svg)[1] for svg in THERE.values()}
    palette = dict(re.findall(r"--drawing-(\w+):(#\w+)", style.split("@media")[scheme]))
    for ground in ("paper", *(("soft", "warm") if colour == "ink" else ())):
        light, dark = sorted((_luminance(palette[colour]), _luminance(palette[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_schemes_say_what_holds():
    """Every KV policy is there, and a shuffled control executes as many tokens at every site."""
    assert set(get_args(KVPolicy)) <= set(_words(THERE["branch.svg"]))
    counts = {x: [one.text for one in _texts(THERE["shuffled.svg"]) if one.attrib["x"] == x] for x in ("208", "406")}
    assert counts["208"] == counts["406"] and len(counts["208"]) == 5


# The page of the paper's tables shows what the runs whose records lie beside it say of them.
PAPER = DOCS / "records/nano_paper"  # an entry for each experiment of the paper
TASKS = ("nano_math", "nano_qa")
TABLES = (DOCS / "paper_tables.md").read_text(encoding="utf-8")
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
    return read_board([PAPER / run / "table.json" for run in runs])


@pytest.mark.parametrize("number", RUNS)
def test_each_table_is_that_of_its_runs(number):
    (found,) = beside(_board(*RUNS[number]), number)
    expected = paper_text(found, "markdown")
    assert f"\n{expected}\n" in TABLES, f"docs/paper_tables.md is to have:\n{expected}"


def test_the_page_begins_with_how_many_orders_are_those_of_the_paper():
    """Counted from rows and the paper's texts: pairs apart by their deviations there and by their intervals here,
    where both are measured within a point of the level."""
    (table,) = [one for one in paper_tables() if one["table"] == 1]
    tasks = {"written": TASKS, "likelihood": ("nano_qa_ll",)}
    rows = [row for row in _board("methods").rows if row.status == "ok"]
    frame = pd.DataFrame(
        [
            (row.label, row.task, row.level, row.low, row.high)
            for row in rows
            if row.metric.startswith(("exact", "acc,"))
        ],
        columns=["label", "task", "level", "low", "high"],
    ).drop_duplicates(["label", "task", "level"])
    counts = {(kind, exits): [0, 0] for kind in tasks for exits in (True, False)}
    for column, (kind, level) in enumerate(table["asks"]):
        here = frame[(frame.level == level) & frame.task.isin(tasks[kind])].dropna()
        ends = here.groupby("label")[["low", "high"]].agg(["mean", "size"])
        ends = ends[ends["low", "size"] == len(tasks[kind])]
        known = []
        for row in table["rows"]:
            mean, _, deviation = row["values"][column].partition(" ± ")
            for label in (row["method"], f"{row['method']}@paper"):
                if mean and label in ends.index:
                    low, high = ends.loc[label, "low"]["mean"], ends.loc[label, "high"]["mean"]
                    known.append((label, float(mean), float(deviation or 0), low, high))
        for one, other in itertools.combinations(known, 2):
            variants = [label.partition("@")[0].partition("[")[0] for label in (one[0], other[0])]
            if variants[0] == variants[1] and ("@" in one[0]) != ("@" in other[0]):
                continue  # one row of the paper, in two semantics
            apart = abs(one[1] - other[1]) > one[2] + other[2], one[3] > other[4] or one[4] < other[3]
            if all(apart):
                inverse = int((one[1] > other[1]) != (one[3] > other[4]))
                counts[kind, True][inverse] += 1
                counts[kind, False][inverse] += not {"calm", "free", "layerskip"} & set(variants)
    first = re.sub(r"\s+", " ", TABLES.partition("\n\n")[2].partition("\n\n")[0])
    assert first == (
        "Of the pairs of values in the paper's Table 1 that both sides decide, here measured within a point of the "
        "level, on the generative tasks {} are in the "
        "same order here and {} in the inverse one, on the log-likelihood tasks {} and {}. Without CALM, FREE and "
        "LayerSkip, which the paper's code runs at one depth at all levels, they are {} and {}, and {} and {}."
    ).format(*itertools.chain(*(counts[kind, exits] for exits in (True, False) for kind in tasks)))


def test_defaults_stand_beside_ablations_in_the_same_semantics():
    (found,) = beside(_board("methods"), 5)
    labels = [row["label"] for row in found["rows"] if row["label"] is not None]
    assert "gateskip@paper" in labels and all(label.endswith("@paper") for label in labels)


def _costs():
    """What 15 % saved tokens come to in net FLOPs, of the nano model and of a model of the paper's shape with the same
    decisions; the dearest method first.
    """
    rows = [row for row in _board("methods").rows if (row.status, row.level) == ("ok", 0.15)]
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
    assert f"\n\n{_costs()}\n\n" in TABLES, f"docs/paper_tables.md is to have:\n{_costs()}"
