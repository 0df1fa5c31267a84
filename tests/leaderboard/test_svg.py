"""The SVG of a table, which no library drew."""

import xml.etree.ElementTree as ElementTree

from adaptive_bench.leaderboard import svg

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


def test_one_score_alone_is_drawn():
    ElementTree.fromstring(svg.render([row("mod", 0.0, 0.5)]))


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
