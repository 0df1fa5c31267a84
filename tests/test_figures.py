"""The figures of the documentation: written by code, from records, readable, and on the pages of their concepts."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import get_args

import pytest

from adaptive_bench.docs import charts, drawing, figures, mechanisms, results, schemes
from adaptive_bench.method import KVPolicy

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
WRITTEN = figures.figures(DOCS / "records")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
OF_CONCEPTS = ("concepts.md", "protocol.md", "statistics.md", "headroom.md", "tuning.md", "speculation.md")
SVG = "{http://www.w3.org/2000/svg}"


def _record(name):
    return json.loads((DOCS / "records" / name).read_text(encoding="utf-8"))


def _texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_figures_are_up_to_date():
    there = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "figures").iterdir()}
    assert there == WRITTEN, "run: python -m adaptive_bench.docs docs"


@pytest.mark.parametrize("page", OF_CONCEPTS)
def test_every_page_of_concepts_has_a_figure(page):
    shown = [target for _, target in PICTURE.findall((DOCS / page).read_text(encoding="utf-8"))]
    assert any(target.startswith("figures/") for target in shown)


def test_every_figure_is_shown():
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in OF_CONCEPTS)
    assert {Path(target).name for _, target in PICTURE.findall(text)} == set(WRITTEN)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_no_picture_is_broken_or_without_words(page):
    for words, target in PICTURE.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file()
        assert len(words.split()) > 4, f"{target} needs an alternative text that says what is seen"


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_drawn_lies_on_the_sheet(name):
    root = ElementTree.fromstring(WRITTEN[name])
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


@pytest.mark.parametrize("palette", [drawing.LIGHT, drawing.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("colour", drawing.WRITTEN_IN)
def test_letters_can_be_read(palette, colour):
    for ground in ("paper", *(("soft", "warm") if colour == "ink" else ())):
        light, dark = sorted((_luminance(palette[colour]), _luminance(palette[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_every_kv_policy_is_drawn():
    assert set(get_args(KVPolicy)) <= set(_texts(WRITTEN["branch.svg"]))


def test_the_shuffled_control_executes_as_many_tokens_at_every_site():
    assert sorted(schemes.DRAWN) == list(range(len(schemes.DECISIONS)))
    assert all(drawn != token for token, drawn in enumerate(schemes.DRAWN))


def test_axes_and_ranks_are_those_of_their_record():
    record = _record("nano_steps.json")
    rows = [row for row in record["scores"] if (row["task"], row["steps"]) == ("nano_math", 320)]
    assert {f"{100 * row['saved_tokens']:.1f}" for row in rows} <= set(_texts(WRITTEN["axes.svg"]))
    drawn = [text for text in _texts(WRITTEN["ranks.svg"]) if text in {row["method"] for row in rows}]
    assert drawn == [row["method"] for row in sorted(rows, key=lambda row: -row["score"])]
    assert WRITTEN["ranks.svg"].count("var(--drawing-warm)") == len(rows)


def test_the_headroom_is_that_of_its_record():
    for task in _record("nano_headroom.json")["tasks"]:
        (found,) = [one["headroom"] for one in task["levels"] if one["level"] == 0.15]
        value, low, high = (f"{100 * found[key]:+.1f}" for key in ("difference", "low", "high"))
        assert {task["task"], f"{value} [{low}, {high}]"} <= set(_texts(WRITTEN["headroom.svg"]))


def test_trials_are_those_of_their_record():
    record = _record("nano_trials.json")
    texts, svg = _texts(WRITTEN["trials.svg"]), WRITTEN["trials.svg"]
    assert set(record["best"]) <= set(texts)
    legend = 3
    assert svg.count("<circle") == sum(one["value"] is not None for one in record["trials"]) + legend
    confirmed = {one["method"] for one in record["confirmed"]}
    assert svg.count("<polygon") == len(confirmed) + 1
    moved = {**record, "trials": [{**one, "value": 0.5} for one in record["trials"]]}
    assert results.trials(moved).svg() != svg


def test_drafts_are_drawn_as_the_page_tells():
    kept = mechanisms.accepted()
    assert (
        mechanisms.DRAFT[:kept] == mechanisms.TEXT[1 : 1 + kept] and mechanisms.DRAFT[kept] != mechanisms.TEXT[1 + kept]
    )
    assert any(f"{kept + 1} from one call" in text for text in _texts(WRITTEN["speculation.svg"]))


def test_numbers_follow_the_record():
    record = _record("nano_steps.json")
    moved = {**record, "scores": [{**row, "saved_tokens": 0.21} for row in record["scores"]]}
    assert "21.0" in _texts(charts.axes(moved).svg()) and "21.0" not in _texts(WRITTEN["axes.svg"])


def test_writing_removes_figures_that_are_gone(tmp_path):
    (tmp_path / "gone.svg").touch()
    figures.write(tmp_path, DOCS / "records")
    assert {path.name for path in tmp_path.iterdir()} == set(WRITTEN)
