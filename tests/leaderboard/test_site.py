"""Page, Markdown, CSV, JSON and Parquet say the same."""

import csv
import html
import io
import json
import re

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_bench.leaderboard.frame import board_of, read_board
from adaptive_bench.leaderboard.grid import number
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.rows import checked
from adaptive_bench.leaderboard.site import LARGEST_PAGE_BYTES, as_csv, as_json, as_markdown, build
from adaptive_bench.source import code_of
from adaptive_bench.store.results import write_run

METHODS = ("dense", "base", "random_skip", "gateskip", "gateskip@paper", "mod[capacity=0.5]")
SHARE = st.floats(0, 1)


@st.composite
def some_rows(draw):
    places = st.tuples(
        st.sampled_from(METHODS),
        st.sampled_from(("nano_math", "text")),
        st.sampled_from(("net", "tokens")),
        st.sampled_from((0.0, 0.05, 0.15, 0.25)),
    )
    rows = []
    for method, task, axis, level in draw(st.lists(places, max_size=14, unique=True)):
        score = draw(st.none() | SHARE)
        ends = sorted(draw(st.tuples(SHARE, SHARE))) if score is not None else [None, None]
        about = {"method": method.removesuffix("@paper"), "semantics": "paper" if "@" in method else "bench"}
        about |= {"task": task, "axis": axis, "level": level, "score": score, "low": ends[0], "high": ends[1]}
        about |= {"metric": "acc,none" if task == "nano_math" else "bits_per_byte,none"}
        about |= {"status": "outside" if score is None else draw(st.sampled_from(("ok", "partial", "inert")))}
        rows.append(checked(about))
    return rows


def _data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def _cells(page):
    """Numbers of the tables that are in the page before any script runs."""
    board = page.partition('<main id="board"')[2].partition("</main>")[0]
    return re.findall(r"<b>(.*?)</b>", html.unescape(board))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_rows())
def test_html_markdown_and_csv_carry_equal_numbers_for_every_subset_of_rows(rows):
    board = board_of(rows)
    page, text = render(board, "net"), as_markdown(board, "net")
    found = list(csv.DictReader(io.StringIO(as_csv(board))))
    assert len(found) == len(rows) == len(json.loads(as_json(board))["rows"])
    by_place = {(one["label"], one["task"], one["axis"], float(one["level"])): one for one in found}
    shown = {}
    for table in _data(page)["tables"]:
        for row in table["rows"]:
            for level, cell in zip(table["levels"], row["cells"], strict=True):
                if cell is not None:
                    shown[row["method"], table["task"], table["axis"], float(level) / 100] = table["metric"], cell
    assert {(one[0], one[1], one[2], round(one[3], 6)) for one in shown} == set(by_place)
    for place, (metric, cell) in shown.items():
        line = by_place[place[0], place[1], place[2], round(place[3], 6)]
        for key, written in zip(("score", "low", "high"), cell[:3], strict=True):
            assert written == (number(metric, float(line[key])) if line[key] else "–")
        kept = f"{100 * float(line['kept']):.1f}" if line["kept"] else "–"
        assert cell[3] == kept
    first = [(cell[0], cell[1], cell[2]) for place, (_, cell) in shown.items() if place[2] == "net" and cell[0] != "–"]
    assert sorted(_cells(page)) == sorted(score for score, _, _ in first)
    scores = "\n".join(part.partition("Saved there")[0] for part in text.split("\n## ")[1:])
    for score, low, high in first:
        assert re.search(rf"(?<![\d.]){re.escape(score)}[*†‡≈⚠]* \[{re.escape(low)}, {re.escape(high)}\]", scores)


def test_what_is_written_is_complete_small_and_asks_for_nothing(tmp_path, make_row):
    run = tmp_path / "run"
    run.mkdir()
    rows = [make_row(method=method, level=level) for method in ("dense", "random_skip", "mod") for level in (0.0, 0.1)]
    (run / "table.json").write_text(json.dumps(rows))
    write_run(run, {})
    build([run / "table.json"], tmp_path / "site")
    written = {path.name for path in (tmp_path / "site").iterdir()} - {"figures"}
    assert written == {"index.html", "board.md", "board.csv", "board.json", "board.parquet"}
    page = (tmp_path / "site" / "index.html").read_text()
    assert len(page.encode()) < LARGEST_PAGE_BYTES
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(|fetch\(|XMLHttpRequest", page)
    assert "default-src 'none'" in page
    frame = pandas.read_parquet(tmp_path / "site" / "board.parquet")
    assert frame["score"].tolist() == [
        one["score"] for one in json.loads((tmp_path / "site" / "board.json").read_text())["rows"]
    ]


def test_the_same_rows_give_the_same_bytes(tmp_path, make_row):
    run = tmp_path / "run"
    run.mkdir()
    (run / "table.json").write_text(json.dumps([make_row(), make_row(method="dense")]))
    write_run(run, {})
    for name in ("one", "other"):
        build([run / "table.json"], tmp_path / name)
    for path in (path for path in (tmp_path / "one").rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / "other" / path.relative_to(tmp_path / "one")).read_bytes()


@pytest.mark.parametrize(("axis", "phase"), [("time", None), ("net", "decode")])
def test_a_view_that_does_not_exist_is_refused(tmp_path, make_row, axis, phase):
    from adaptive_bench.errors import UsageError

    (tmp_path / "table.json").write_text(json.dumps([make_row()]))
    write_run(tmp_path, {})
    with pytest.raises(UsageError, match="There is net"):
        build([tmp_path / "table.json"], tmp_path / "site", axis, phase)


def test_methods_measured_with_other_code_are_marked(tmp_path, make_row):
    folder = tmp_path / "run"
    folder.mkdir()
    code = {"gateskip": code_of("gateskip"), "mod": "0" * 16, "calm": None, "gone": "0" * 16}
    facts = {name: {"code": digest} for name, digest in code.items()}
    (folder / "methods.json").write_text(json.dumps({"schema": 1, "methods": facts}))
    write_run(folder, {})
    rows = [checked(make_row(method=name, axis="net")) for name in code]
    page = render(board_of(rows, [folder]), "net")
    known = {method["label"]: method for method in _data(page)["methods"]}
    assert [name for name, method in known.items() if method["stale"]] == ["mod", "gone"]
    assert "code" in _data(page)["facts"]
    assert [known[name]["facts"]["code"] for name in code] == [
        "this version",
        "another version",
        "–",
        "another version",
    ]
    assert page.count('<abbr class="stale"') == 2


def test_a_method_that_runs_disagree_on_stands_there_once_for_each_run(tmp_path, make_row):
    for name, score in (("nano-mod-seed1-aaaa", 0.5), ("nano-mod-seed1-bbbb", 0.6)):
        (tmp_path / name).mkdir()
        rows = [make_row(semantics="paper", score=score, low=None, high=None), make_row(method="dense")]
        (tmp_path / name / "table.json").write_text(json.dumps(rows))
        write_run(tmp_path / name, {})
    board = read_board(sorted(tmp_path.glob("*/table.json")))
    assert {row.method for row in board.rows} == {"gateskip", "dense"}
    labels = {row.label: (row.spec, row.run) for row in board.rows}
    assert labels["dense"] == ("dense", None)
    assert labels["gateskip@paper (seed1-bbbb)"] == ("gateskip@paper", "seed1-bbbb")
    named = {method["label"]: method["spec"] for method in _data(render(board, "net"))["methods"]}
    assert named == {label: spec for label, (spec, _) in labels.items()}
