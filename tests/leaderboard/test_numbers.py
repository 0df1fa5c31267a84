"""The numbers of page, method pages, Markdown, CSV and ranks against the documents of an entry, read here with
nothing of the product: what no dial has moved is a mean over documents and seeds.
"""

import csv
import gzip
import html
import io
import json
import re
from statistics import fmean

import pytest
from pyarrow import parquet

from adaptive_bench.leaderboard.ranks import ranks
from adaptive_bench.leaderboard.site import build

METHODS = ("dense", "random_skip", "gateskip")


@pytest.fixture(scope="module")
def home(small_entry, tmp_path_factory):
    site = tmp_path_factory.mktemp("numbers") / "site"
    build([small_entry / "table.json"], site)
    return small_entry, site


@pytest.fixture(scope="module")
def raw(home):
    """By method the saved net FLOPs and scores of its points, one list for each seed, out of the files."""
    entry, _ = home
    points = parquet.read_table(entry / "points.parquet").to_pylist()
    documents = {}
    for row in parquet.read_table(entry / "documents.parquet").to_pylist():
        documents.setdefault(row["point"], []).append(row)
    found = {}
    for number, point in enumerate(points):
        if point["split"] == "test" and not point["variant"]:
            metric, said = point["scores"][0]
            score = fmean(one[metric] for one in documents[number])
            assert score == pytest.approx(said)
            found.setdefault(point["method"], {}).setdefault(point["seed"], []).append((point["saved_net"], score))
    return found


def at(raw, method, level):
    """The mean over trainings of what lies on the line between measured neighbours; `None` outside."""
    scores = []
    for points in raw[method].values():
        below = [one for one in points if one[0] <= level + 1e-12]
        above = [one for one in points if one[0] >= level - 1e-12]
        if not below or not above:
            return None
        (x, y), (u, v) = max(below), min(above)
        scores.append(y if u == x else y + (v - y) * (level - x) / (u - x))
    return fmean(scores)


def test_every_score_of_the_files_is_that_of_the_documents(home, raw):
    _, site = home
    (file,) = (site / "rows").glob("*-net.csv.gz")
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode())))
    metric = lines[0]["metric"]
    some = [line for line in lines if line["metric"] == metric and line["score"]]
    assert {line["label"] for line in some} == set(METHODS)
    held = 0
    for line in some:
        expected = at(raw, line["label"], float(line["level"]))
        if (
            expected is not None
            and len({round(one[0], 9) for points in raw[line["label"]].values() for one in points}) > 1
        ):
            assert float(line["score"]) == pytest.approx(expected, abs=1e-9), line["label"]
            held += 1
        elif float(line["level"]) == 0 and line["label"] == "dense":
            assert float(line["score"]) == pytest.approx(
                fmean(one[1] for sweep in raw["dense"].values() for one in sweep)
            )
            held += 1
    assert held > 3
    shown = {(line["label"], f"{100 * float(line['level']):g}"): f"{100 * float(line['score']):.1f}" for line in some}
    page = (site / "index.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    (table,) = [one for part in data["parts"].values() for one in part.get("tables", ()) if one["headline"]]
    cells = {
        (row["method"], level): cell[0]
        for row in table["rows"]
        for level, cell in zip(table["levels"], row["cells"], strict=True)
        if cell is not None and cell[0] != "–"
    }
    assert cells == shown
    for method in METHODS:
        own = {value for (label, _), value in shown.items() if label == method}
        text = html.unescape((site / "methods" / f"{method}.html").read_text())
        tables = text.partition("Where it stands")[2].partition("What executes")[0]
        assert own <= set(re.findall(r"<b>(.*?)</b>", tables))
    board = (site / "board.md").read_text()
    for (label, _), value in shown.items():
        (line,) = [one for one in board.splitlines() if one.startswith(f"| {label} ")][:1]
        assert value in line


def test_the_ranks_of_a_pull_request_are_those_of_the_page(home):
    entry, site = home
    page = (site / "index.html").read_text()
    top = html.unescape(page.partition('id="standing"')[2].partition("</table>")[0])
    numbers = re.findall(r"<b>(.*?)</b>", top)
    text = ranks([entry / "table.json"])
    assert numbers == [] or all(f"{number}" in text for number in numbers)
    said = re.search(r'id="answer">(.*?)<', page)[1]
    assert html.unescape(said).split(",")[0] in text
