"""Page, Markdown, CSV, JSON and Parquet say the same."""

import csv
import gzip
import html
import io
import json
import re
from pathlib import Path

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_bench.leaderboard.frame import board_of, read_board
from adaptive_bench.leaderboard.numbers import number
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.plain import markdown
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.leaderboard.site import LARGEST_PAGE_BYTES, as_csv, as_json, as_markdown, build
from adaptive_bench.leaderboard.texts import NONE
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
    """What the page knows, with the tables and methods of all its parts."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    data["tables"] = [table for part in data["parts"].values() for table in part.get("tables", ())]
    data["methods"] = [method for board in data["boards"] for method in board["methods"]]
    return data


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
    for one in [one for part in _data(page)["parts"].values() for one in part.get("ranked", ())]:
        for line in one["lines"]:
            for task, cell in zip(one["tasks"], line["cells"], strict=True):
                place = (line["label"], task, one["axis"], round(float(line["at"]) / 100, 6))
                there = by_place.get(place, {}).get("score")
                assert bool(there) == (cell is not None)
                assert cell is None or (cell[:3], cell[3]) == (shown[place][1][:3], shown[place][1][3])
        assert markdown(one["said"]) in text or one["axis"] != "net" or one["level"] != "15"
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
    assert written == {"index.html", "data", "methods", "rows", "board.md", "board.json"}
    page = (tmp_path / "site" / "index.html").read_text()
    assert len(page.encode()) < LARGEST_PAGE_BYTES
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(|fetch\(|XMLHttpRequest", page)
    assert "default-src 'none'" in page
    (listed,) = json.loads((tmp_path / "site" / "board.json").read_text())["files"]
    place = tmp_path / "site" / listed["name"]
    frame = pandas.read_parquet(f"{place}.parquet")
    assert listed["rows"] == len(frame) == len(rows) == len(pandas.read_csv(f"{place}.csv.gz"))
    assert frame["score"].tolist() == [
        one["score"] for one in json.loads(gzip.decompress(Path(f"{place}.json.gz").read_bytes()))["rows"]
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
    assert [name for name, method in known.items() if method["stale"]] == ["mod"]  # of one that is gone nobody knows
    assert "code" in _data(page)["facts"]
    assert [known[name]["facts"]["code"] for name in code] == [
        "this version",
        "another version",
        "–",
        "a plugin, which is not here",
    ]
    shown = page.partition('<main id="board"')[2].partition("</main>")[0]
    assert shown.count('<abbr class="stale"') == 1


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


def test_the_ranked_table_has_the_numbers_of_the_rows(make_row):
    scores = {"dense": (0.0, 0.95), "mod": (0.15, 0.9), "calm": (0.15, 0.4), "random_skip": (0.15, 0.2)}
    rows = [
        make_row(method=method, task=task, level=level, score=score, low=score - 0.05, high=score + 0.05, phase="all")
        for task in ("nano_math", "nano_qa")
        for method, (level, score) in scores.items()
    ]
    board = board_of(map(checked, rows))
    page = render(board, "net")
    (found,) = _data(page)["parts"]["1-model-not-recorded-net"]["ranked"]
    kept = {row.label: row.kept for row in board.rows}  # the scale's own 0 is 0 here: no base, and a guess has 0
    for line in found["lines"]:
        # Without the scores of documents nobody knows how a mean over tasks varies.
        assert line["overall"] == [f"{100 * kept[line['label']]:.1f}", NONE, NONE]
        score = scores[line["label"]][1]
        texts = [number(rows[0]["metric"], one) for one in (score, score - 0.05, score + 0.05)]
        assert [cell[:3] for cell in line["cells"]] == [texts, texts]
    assert [(line["label"], line["rank"]) for line in found["lines"]] == [
        ("mod", "1–2"), ("calm", "1–2"), ("dense", ""), ("random_skip", ""),  # no test without documents
    ]  # fmt: skip
    top = html.unescape(page.partition('id="standing"')[2].partition("</section>")[0])
    shown = [text for line in found["lines"] for text in (line["overall"][0], *(cell[0] for cell in line["cells"]))]
    assert re.findall(r"<b>(.*?)</b>", top) == shown
    assert f'id="answer">{html.escape(found["said"])}<' in page


def test_models_and_recipes_never_share_a_table_and_the_sandbox_comes_last(make_row):
    about = {"level": 0.1, "documents": 100, "seeds": 3}
    good = [make_row(method=name, model="good", **about) for name in ("dense", "mod", "calm")]
    junk = [make_row(method="free", model="junk", **(about | {"documents": 4, "seeds": 1, "score": 0.95}))]
    data = _data(render(board_of(map(checked, [*junk, *good])), "net"))
    assert [(one["name"], one["featured"]) for one in data["boards"]] == [("good", True), ("junk", False)]
    assert data["board"] == data["boards"][0]["key"] and data["boards"][1]["meta"].startswith("sandbox")
    for name, part in data["parts"].items():
        methods = {row["method"] for table in part.get("tables", ()) for row in table["rows"]}
        assert methods <= ({"free"} if "junk" in name else {"dense", "mod", "calm"})
    more = [make_row(method="router_tuned_mod", model="good", **(about | {"seeds": 1}))]  # does not put it there
    assert _data(render(board_of(map(checked, [*good, *more])), "net"))["boards"][0]["featured"]


def test_data_lies_beside_the_page_or_in_it(tmp_path, make_row):
    (tmp_path / "table.json").write_text(json.dumps([make_row(axis=axis, model="m") for axis in ("net", "core")]))
    write_run(tmp_path, {})
    build([tmp_path / "table.json"], tmp_path / "site")
    build([tmp_path / "table.json"], tmp_path / "alone", one_file=True)
    assert sorted(path.name for path in (tmp_path / "site" / "data").iterdir()) == ["1-m-core.js", "1-m-runs.js"]
    assert not (tmp_path / "alone" / "data").exists()
    page, alone = ((tmp_path / name / "index.html").read_text() for name in ("site", "alone"))
    assert "'self'" in page and "'self'" not in alone
    inside = _data(alone)["parts"]
    beside = (tmp_path / "site" / "data" / "1-m-core.js").read_text()
    name, _, part = beside.removeprefix("arrived(").removesuffix(");\n").partition(", ")
    assert json.loads(name) == "1-m-core" and json.loads(part) == inside["1-m-core"]
    assert set(_data(page)["parts"]) == {"1-m-net"} and set(inside) == {"1-m-net", "1-m-core", "1-m-runs"}
