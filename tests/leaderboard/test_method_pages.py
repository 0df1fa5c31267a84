"""A page for each method: what its file says, where it stands, and what its records hold."""

import html
import re

import pytest

from adaptive_bench import registry
from adaptive_bench.leaderboard.boards import Source, board_of
from adaptive_bench.leaderboard.entry import read_entry
from adaptive_bench.leaderboard.list_text import long
from adaptive_bench.leaderboard.page import build, files_of
from adaptive_bench.leaderboard.page.method_pages import Links, _coded, _of_docstring, described, samples_of
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.leaderboard.standing import standings


@pytest.fixture(scope="module")
def pages(small_run, small_entry, tmp_path_factory):
    """The site of an entry, and of its run."""
    home = tmp_path_factory.mktemp("pages")
    for name, place in (("entry", small_entry), ("run", small_run)):
        build([place / "table.json"], home / name, manual="..")
    return home


def test_every_method_of_the_board_has_a_page_that_the_table_leads_to(pages):
    index = (pages / "entry" / "index.html").read_text()
    names = {path.name for path in (pages / "entry" / "methods").iterdir()}
    assert names == {"dense.html", "random_skip.html", "gateskip.html", "board.css"}
    assert {f"methods/{name}" for name in names if name.endswith("html")} <= set(re.findall(r'href="([^"]+)"', index))


@pytest.mark.parametrize("where", ["entry", "run"])
def test_a_page_has_idea_paper_deviations_and_layers(pages, where):
    page = (pages / where / "methods" / "gateskip.html").read_text()
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "A gate reads the branch's input, multiplies its output" in text
    assert 'href="https://arxiv.org/abs/2510.13876"' in page and 'href="../../methods/gateskip/"' in page
    for title in ("Where it stands", "What executes", "Deviations from the paper"):
        assert f"<h2>{title}</h2>" in page
    assert re.search(r'aria-label="Executed share by layer[^"]*: \d+ and \d+', page)
    assert ("A. Name" in page and "https://example.org/paper" in page) == (where == "entry")


def test_the_layers_are_those_of_the_record(pages, small_entry):
    (points,) = [there["gateskip"] for there in samples_of([Source(small_entry, read_entry(small_entry))]).values()]
    nearest = min(points, key=lambda point: abs(point.savings["net"] - 0.15))
    page = (pages / "entry" / "methods" / "gateskip.html").read_text()
    (said,) = re.findall(r'aria-label="Executed share by layer[^:]*: ([^"]*)"', page)
    shares = zip(nearest.attention_executed[::-1], nearest.mlp_executed[::-1], strict=True)
    assert said == "; ".join(f"{100 * one:.0f} and {100 * other:.0f}" for one, other in shares)


def test_numbers_of_a_page_are_those_of_the_board(make_row):
    rows = [
        make_row(method=method, task=task, level=level, score=score, low=score - 0.01, high=score + 0.01, model="m")
        for task in ("nano_math", "nano_qa")
        for method, level, score in (
            ("dense", 0.15, 0.9), ("mod", 0.15, 0.7512), ("mod[capacity=0.5]", 0.15, 0.61),
            ("calm", 0.15, 0.333),
        )
    ]  # fmt: skip
    board = board_of(map(checked, rows))
    page = files_of(board)["methods/mod.html"]
    (found,) = [one for one in standings(board) if one.level == 0.15]
    own = [texts for line, texts in zip(found.lines, long(found)[1], strict=True) if line.label.startswith("mod")]
    assert len(own) == 2 and own[0][5:7] == ["75.1 [74.1, 76.1]"] * 2
    shown = [html.unescape(one) for one in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page.replace("<wbr>", ""))]
    places = [(shown.index(texts[1]) - 1, texts) for texts in own]
    assert all(shown[at : at + len(texts)] == texts for at, texts in places) and "33.3" not in page, "another method's"


def test_hostile_texts_stay_texts(make_row):
    rows = [checked(make_row(method="not_here", level=0.1, model="m"))]
    page = files_of(board_of(rows))["methods/not_here.html"]
    assert "plugin that is not installed" in page and "<script" not in page
    text = "Title <b>\n\nIdea: one `<img src=x>` idea. Two.\n\nPaper: see https://evil.org/a<x> and javascript:x.\n"
    about = _of_docstring(text, "x.py", own=False)
    shown = [str(_coded(one)) for one in (about.title, about.idea, *about.sources)]
    assert not re.findall(r"<(?!/?code>|/?a\b)", "".join(shown)) and "&lt;x&gt;" in shown[-1]
    assert re.findall(r'href="([^"]*)"', "".join(shown)) == ["https://evil.org/a"]


def test_every_method_of_this_package_says_its_idea():
    for name in registry.names("methods"):
        if not registry.is_foreign("methods", name):
            about = described(name)
            assert about.title and about.idea and "Source, equations" not in about.idea
            assert len(re.findall(r"[.!?](?= [A-Z])", about.idea)) < 3


def test_addresses_lead_away_only_from_links(make_row):
    links = Links("https://docs.example.org", "https://example.org/repository")
    page = files_of(board_of([checked(make_row())]), links)["index.html"]
    away = re.findall(r"<(\w+)[^>]*(?:href|src)=[\"']?(?:https?:)?//", page)
    assert away == ["a", "a"] and 'href="https://example.org/repository"' in page
    assert "@software{adaptive_bench," in page and 'property="og:title"' in page
