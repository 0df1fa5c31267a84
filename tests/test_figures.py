"""The figures of the documentation: drawn from records, readable, and on the pages of their concepts."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import get_args

import pytest

from adaptive_bench.docs import figures
from adaptive_bench.method import KVPolicy

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
THERE = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "figures").iterdir()}
DRAWN = figures.figures(DOCS / "records")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
OF_CONCEPTS = ("concepts", "protocol", "statistics", "headroom", "tuning", "speculation")
SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg):
    return list(ElementTree.fromstring(svg).iter(f"{SVG}text"))


def _words(svg):
    return [element.text for element in _texts(svg)]


def test_figures_are_those_of_their_records():
    assert {name: THERE.get(name) for name in DRAWN} == DRAWN, "run: python -m adaptive_bench.docs docs"
    record = json.loads((DOCS / "records" / "nano_steps.json").read_text(encoding="utf-8"))
    moved = {**record, "scores": [{**row, "saved_tokens": 0.21} for row in record["scores"]]}
    assert "21.0" in _words(figures.axes(moved).svg()) and "21.0" not in _words(THERE["axes.svg"])


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


@pytest.mark.parametrize("palette", [figures.LIGHT, figures.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("colour", figures.WRITTEN_IN)
def test_letters_can_be_read(palette, colour):
    assert all(figures.colours(palette) in svg for svg in THERE.values())
    for ground in ("paper", *(("soft", "warm") if colour == "ink" else ())):
        light, dark = sorted((_luminance(palette[colour]), _luminance(palette[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_schemes_say_what_holds():
    """Every KV policy is there, and a shuffled control executes as many tokens at every site."""
    assert set(get_args(KVPolicy)) <= set(_words(THERE["branch.svg"]))
    counts = {x: [one.text for one in _texts(THERE["shuffled.svg"]) if one.attrib["x"] == x] for x in ("208", "406")}
    assert counts["208"] == counts["406"] and len(counts["208"]) == 5
