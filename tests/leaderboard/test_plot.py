"""Pictures of a table: characters in a terminal's width, and an SVG that no library drew."""

import xml.etree.ElementTree as ElementTree

import pytest

from adaptive_bench.leaderboard import plot, svg

METRIC = "exact_match,strict-match"


def row(method, level, score, **more):
    ends = {"low": None if score is None else score - 0.05, "high": None if score is None else score + 0.05}
    return (
        {"method": method, "task": "t", "metric": METRIC, "axis": "net", "level": level, "score": score} | ends | more
    )


FALLING = [
    row("dense", 0.0, 1.0),
    row("dense", 0.1, None),
    *(row("mod", level, score) for level, score in ((0.0, 0.9), (0.1, 0.6), (0.2, 0.2))),
    *(row("gateskip[shape=<scalar>]", level, 0.5) for level in (0.0, 0.2)),
]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_picture_fits_and_letters_stand_where_scores_were_read(width):
    drawn = plot.render(FALLING, width=width)
    assert max(map(len, drawn.splitlines())) <= width
    canvas = [line.partition("│")[2] for line in drawn.splitlines() if "│" in line]
    assert canvas[0].startswith("A"), "the dense model saves nothing and has the highest score"
    falling = [(line.index("B"), place) for place, line in enumerate(canvas) if "B" in line]
    assert len(falling) == 3 and falling == sorted(falling), "further right is further down"
    assert falling[-1][0] == max(map(len, canvas)) - 1
    assert "A dense, B mod, C gateskip[shape=<scalar>]" in " ".join(drawn.split())


def test_what_stands_at_one_place_is_said_to_be_several():
    assert any("*" in line for line in plot.render([row("a", 0.0, 0.5), row("b", 0.0, 0.5)], width=60).splitlines()[1:])


def test_nothing_to_draw_is_an_empty_text():
    assert plot.render([row("mod", 0.1, None)], width=80) == ""
    assert plot.render([]) == ""


def test_one_score_alone_is_drawn():
    assert "A" in plot.render([row("mod", 0.0, 0.5)], width=60)
    ElementTree.fromstring(svg.render([row("mod", 0.0, 0.5)]))


def test_of_a_metric_where_less_is_better_the_picture_says_so():
    rows = [row("mod", level, 1.0 + level) | {"metric": "bits_per_byte,none"} for level in (0.0, 0.2)]
    assert "Lower is better" in plot.render(rows, width=80)


def test_the_svg_has_every_curve_and_asks_nobody_for_anything():
    text = svg.render(FALLING)
    root = ElementTree.fromstring(text)
    names = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
    assert {"dense", "mod", "gateskip[shape=<scalar>]"} <= set(names)
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert [len(line.get("points").split()) for line in lines] == [3, 2]
    heights = [float(point.partition(",")[2]) for point in lines[0].get("points").split()]
    assert heights == sorted(heights), "lower scores are lower down"
    assert text.count("http") == 1, "the name space is no address"
    assert text == svg.render(FALLING)


def test_an_empty_table_is_an_empty_svg():
    ElementTree.fromstring(svg.render([]))
