"""Page, Markdown, CSV, Parquet, points and drawings say the same, and what cannot be read is left out aloud."""

import html
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from statistics import fmean

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from swept_board import board_with, line_of, right, standing_of

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.leaderboard import markdown, svg
from adaptive_bench.leaderboard.boards import board_of, groups_of, read_board
from adaptive_bench.leaderboard.list_text import headline, long, short
from adaptive_bench.leaderboard.page import build, files_of
from adaptive_bench.leaderboard.plain import markdown as shown
from adaptive_bench.leaderboard.row import Rejected, checked
from adaptive_bench.leaderboard.standing import standings
from adaptive_bench.leaderboard.swept_answers import read_answers
from adaptive_bench.store.keys import TABLES, code_of
from adaptive_bench.store.runs import as_parquet, write_run

METHODS = ("dense", "base", "random_skip", "static_depth", "gateskip@paper", "mod[capacity=0.5]")
SHARE = st.floats(0, 1)


@st.composite
def some_rows(draw):
    places = st.tuples(st.sampled_from(METHODS), st.sampled_from(("nano_math", "text")), st.sampled_from((0.05, 0.15)))
    rows = []
    for method, task, level in draw(st.lists(places, max_size=14, unique=True)):
        score = draw(st.none() | SHARE)
        ends = sorted(draw(st.tuples(SHARE, SHARE))) if score is not None else [None, None]
        about = {"method": method.removesuffix("@paper"), "semantics": "paper" if "@" in method else "bench"}
        about |= {"task": task, "axis": "net", "level": level, "score": score, "low": ends[0], "high": ends[1]}
        about |= {"metric": "acc,none" if task == "nano_math" else "bits_per_byte,none", "saved": draw(SHARE)}
        about |= {
            "status": "missing" if score is None else draw(st.sampled_from(("ok", "nearest", "partial", "inert")))
        }
        rows.append(checked(about))
    return rows


def cells(page):
    """Texts of the lines of all ranked lists of a page."""
    tables = re.findall(r'<table class="ranked">(.*?)</table>', page, re.DOTALL)
    lines = [re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.DOTALL)[1:] for table in tables]
    return [
        [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line)]
        for table in lines
        for line in table
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_rows())
def test_every_face_carries_the_numbers_of_the_rows(rows):
    board = board_of(rows)
    page, text = files_of(board)["index.html"], markdown.written(board)
    lines = parquet.read_table(io.BytesIO(as_parquet(board.lines))).to_pylist()
    assert len(lines) == len(rows)
    for row, line in zip(board.rows, lines, strict=True):
        values = [line[key] for key in ("level", "score", "low", "high", "saved")]
        assert values == [row.level, row.score, row.low, row.high, row.saved] and line["label"] == row.label
    found = cells(page)
    written = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines()]
    for standing in standings(board):
        _, body = long(standing)
        assert all(texts in found for texts in body)
        assert [texts for texts in body if [shown(one, markdown._LONGEST) for one in texts] not in written] == []
        assert html.escape(headline(standing)) in page and shown(headline(standing)) in text
        for line in standing.lines:
            for (task, _), row in zip(standing.tasks, line.rows, strict=True):
                there = [
                    one for one in board.rows if (one.label, one.task, one.level) == (line.label, task, standing.level)
                ]
                assert (row is None) == (not there or there[0].score is None)


def write(folder, rows, answers=None):
    """A run's folder; its table."""
    folder.mkdir(parents=True)
    (folder / "table.json").write_text(json.dumps(rows))
    if answers is not None:
        (folder / "answers.json").write_text(answers)
    write_run(folder, {"tables": TABLES})
    return folder / "table.json"


def test_what_is_written_is_complete_small_and_asks_for_nothing(tmp_path, make_row):
    rows = [make_row(method=method, level=level) for method in ("dense", "random_skip", "mod") for level in (0.0, 0.1)]
    build([write(tmp_path / "run", rows)], tmp_path / "site")
    written = {path.name for path in (tmp_path / "site").iterdir()}
    assert written == {"index.html", "methods", "rows", "board.md", "board.json"}
    page = (tmp_path / "site" / "index.html").read_text()
    assert len(page.encode()) < 2**20
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(|<script", page)
    assert "default-src 'none'; style-src 'sha256-" in page and "script-src" not in page
    (listed,) = json.loads((tmp_path / "site" / "board.json").read_text())["files"]
    place = tmp_path / "site" / listed["name"]
    frame = pandas.read_parquet(f"{place}.parquet")
    assert listed["rows"] == len(frame) == len(rows)
    assert frame["score"].tolist() == [row["score"] for row in rows]


def test_the_same_rows_give_the_same_bytes(tmp_path, make_row):
    rows = [make_row(level=0.15, score=0.5), make_row(method="dense", level=0.15), make_row(method="base", score=0.1)]
    table = write(tmp_path / "run", rows)
    for name in ("one", "other"):
        build([table], tmp_path / name)
    paths = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} >= {".html", ".md", ".json", ".parquet"}
    for path in paths:
        assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes()


def test_every_score_is_that_of_the_documents_of_an_entry(small_entry, tmp_path):
    """Read with nothing of the product: each seed at its nearest point, and the mean of its documents there."""
    points = parquet.read_table(small_entry / "points.parquet").to_pandas()
    documents = parquet.read_table(small_entry / "documents.parquet").to_pandas()
    metric = "acc,none"
    points["score"] = documents.groupby("point")[metric].mean()
    points = points[(points["split"] == "test") & (points["variant"] == "")]
    build([small_entry / "table.json"], tmp_path / "site")
    (file,) = (tmp_path / "site" / "rows").glob("*.parquet")
    rows = pandas.read_parquet(file)
    rows = rows[rows["metric"] == metric]
    assert set(rows["label"]) == {"dense", "random_skip", "gateskip"} and len(rows) > 3
    for row in rows.itertuples():
        near = []
        for _, sweep in points[points["method"] == row.label].groupby("seed"):
            axis = f"saved_{row.axis}"
            away = (sweep[axis] - row.level).abs().round(9)
            near.append(sweep[away == away.min()].sort_values(axis).iloc[-1])
        assert row.score == pytest.approx(fmean(one["score"] for one in near)), (row.label, row.level)
        assert row.saved == pytest.approx(fmean(one[axis] for one in near))


GOOD = {"method": "gateskip[gate=scalar]", "task": "nano_math", "metric": "acc,none", "axis": "net", "level": 0.1,
        "score": 0.75, "low": 0.5, "high": 0.9, "seeds": 3}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"method": "../x"}, "A method spec has the form"),
        ({"score": "0.9"}, "score"),
        ({"axis": "nett"}, "axis"),
        ({"task": "a\x1b[31mred"}, "task is a line"),
        ({"task": "<script>alert(1)</script>"}, "task is a line of .* without markup"),
        ({"recipe": "x" * 2000}, "recipe is a line of at most 1000"),
    ],
)
def test_a_value_of_another_kind_is_refused_and_said_in_a_line(wrong, why, tmp_path):
    with pytest.raises(Rejected, match=why) as error:
        checked(GOOD | wrong)
    assert str(error.value).isprintable() and len(str(error.value)) < 250
    board = read_board([write(tmp_path / "run", [GOOD, GOOD | wrong])])
    assert len(board.rows) == 1 and board.refused == [f"Row 1 of run/table.json is left out: {error.value}."]


def test_columns_that_nobody_knows_are_left_out():
    row = checked(GOOD | {"evil": "<b>", "status": "ok"})
    assert {key: row[key] for key in GOOD} == GOOD and row["phase"] == "all" and "evil" not in row


@pytest.mark.parametrize("text", ["{", '{"sweeps": [{}]}'])
def test_damaged_answers_are_left_out_and_the_build_goes_on(tmp_path, make_row, text):
    table = write(tmp_path / "run", [make_row()], text)
    with pytest.raises(Rejected):
        read_answers(tmp_path / "run")
    said = build([table], tmp_path / "site")
    assert len(said) == 1 and "Paired tests of run are left out" in said[0]
    page = (tmp_path / "site" / "index.html").read_text()
    assert "1 left out of this board" in page and "Paired tests of run are left out" in page
    with pytest.raises(EnvironmentProblem, match="1 of them are refused"):
        build([table], tmp_path / "site", strict=True)


def test_answers_of_another_score_or_other_conditions_are_not_taken_for_a_row_s(make_row):
    scores = {"dense": right(1), "base": right(0), "mod": right(0.5), "calm": right(0.3)}
    board = board_with(make_row, {"a": scores})
    rows = [replace(row, score=0.9) if row.label == "mod" else row for row in board.rows]
    (standing,) = standings(replace(board, rows=rows))
    known = {line.label: line.scores is not None for line in standing.lines}
    assert known == {"dense": True, "base": True, "mod": False, "calm": True}
    (standing,) = standings(replace(board, sources=[replace(one, measured=()) for one in board.sources]))
    assert not any(line.scores for line in standing.lines)


def test_models_and_recipes_never_share_a_list_and_the_sandbox_comes_last(make_row):
    about = {"level": 0.15, "documents": 100, "seeds": 3}
    good = [make_row(method=name, model="good", backbone="g", **about) for name in ("dense", "mod", "calm")]
    junk = [make_row(method="free", model="junk", backbone="j", **(about | {"documents": 4, "seeds": 1}))]
    other = [make_row(method="calm", model="good", backbone="g", recipe="steps 2", **about)]
    board = board_of(map(checked, [*junk, *good, *other]))
    found = groups_of(board)
    assert [(one.name, one.featured) for one in found] == [
        ("good (of an earlier version)", True), ("junk", False), ("good (steps 2)", False),
    ]  # fmt: skip
    assert [[row.label for row in one.board.rows] for one in found] == [["dense", "mod", "calm"], ["free"], ["calm"]]
    page = files_of(board)["index.html"]
    assert page.index("<h2>good (of") < page.index("<h2>junk") and page.count("sandbox ·") == 2


def test_methods_measured_with_other_code_are_said(tmp_path, make_row):
    code = {"gateskip": code_of("gateskip"), "mod": "0" * 16, "calm": None, "gone": "0" * 16}
    table = write(tmp_path / "run", [make_row(method=name) for name in code])
    facts = {name: {"code": digest} for name, digest in code.items()}
    (tmp_path / "run" / "methods.json").write_text(json.dumps({"schema": 1, "methods": facts}))
    page = files_of(read_board([table]))["index.html"]
    assert "Measured by an earlier version of the method, or of what executes it: `mod`." in page


def test_failures_of_a_run_come_first(make_row, tmp_path):
    table = write(tmp_path / "run", [make_row()])
    write_run(tmp_path / "run", {"tables": TABLES, "failures": ["mod: out of <b>memory</b>"]})
    page = files_of(read_board([table]))["index.html"]
    assert page.index("Failed: mod: out of &lt;b&gt;memory&lt;/b&gt;") < page.index("<h2>")
    text = markdown.render([table], ["mod: out of\n memory"])
    assert text.startswith("# Leaderboard\n\n**Incomplete.**") and "- mod: out of memory" in text


def numbers_of(text, tag):
    root = ElementTree.fromstring(text)
    return [element for element in root.iter() if element.tag.endswith(tag)]


def test_the_chart_has_every_curve_and_its_texts_stay_texts():
    def at(saved, *scores):
        names = ("mod", "gateskip[shape=<scalar>]", "static_depth")
        lines = [line_of(name, score, saved) for name, score in zip(names, scores, strict=True)]
        return standing_of(line_of("dense", 1.0), line_of("base", 0.0), *lines, level=saved)

    found = [at(0.05, 0.9, 0.8, 0.7), at(0.15, 0.6, 0.6, 0.6), at(0.25, 0.2, -0.3, 0.5)]
    text = svg.chart(found)
    names = ["".join(element.itertext()) for element in numbers_of(text, "text")]
    assert {"dense", "mod", "gateskip[shape=<scalar>]", "static_depth", "base"} <= set(names)
    lines = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
             for line in numbers_of(text, "polyline")]  # fmt: skip
    assert [len(line) for line in lines] == [3, 3, 3]
    for line, scores in zip(lines, ((0.9, 0.6, 0.2), (0.8, 0.6, -0.3), (0.7, 0.6, 0.5)), strict=True):
        assert [y for _, y in line] == pytest.approx([16 + 260 * (1 - one) / 1.5 for one in scores], abs=0.06)
        assert [x for x, _ in line] == sorted(x for x, _ in line)
    ticks = [name for name in names if re.fullmatch(r"-?\d+", name)]
    assert sorted(ticks, key=int) == ["-50", "-25", "0", "0", "5", "10", "15", "20", "25", "25", "50", "75", "100"]
    assert text.count("http") == 1 and text == svg.chart(found), "the name space is no address"


def test_one_score_alone_is_drawn_and_nothing_is_an_empty_drawing():
    ElementTree.fromstring(svg.chart([standing_of(line_of("mod", 0.5))]))
    assert "Nothing was measured" in svg.chart([]) and "Nothing was measured" in svg.render([])


def test_the_short_list_of_the_page_is_that_of_the_terminal(make_row):
    scores = {"dense": right(1), "base": right(0), "static_depth": right(0.6), "mod": right(0.8)}
    board = board_with(make_row, {"nano_math": scores})
    (standing,) = standings(board)
    found = cells(files_of(board)["index.html"])
    assert found[: len(scores)] == short(standing, standing.lines)[1]
