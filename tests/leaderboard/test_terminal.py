"""The list in a terminal: 80 columns and at most 12 lines whatever methods are called; `wide` shows everything."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from swept_board import board_with, difference, line_of, right, standing_of, standings

from adaptive_bench.leaderboard import terminal
from adaptive_bench.leaderboard.list_text import (
    MOST_LINES,
    first_lines,
    long,
    notes_of,
    over_static,
    rank,
    score,
    short,
)
from adaptive_bench.leaderboard.standing import Line
from adaptive_bench.leaderboard.terminal import broken, render
from adaptive_bench.store.keys import TABLES
from adaptive_bench.store.runs import write_run


@given(standings())
def test_it_fits_80_columns_and_12_lines_whatever_the_list(standing):
    text = terminal._narrow(standing, "a model: ", 2)
    assert max(map(len, text.splitlines())) <= 80
    lines = first_lines(standing)
    scored = [line for line in standing.lines if line.score is not None]
    needed = [line for line in scored if line.is_reference or line.label == standing.static]
    assert len(lines) == min(len(scored), max(MOST_LINES, len(needed)))
    assert [line for line in scored if line in lines] == lines and all(line in lines for line in needed)
    left = [line for line in scored if line not in lines]
    assert all(one.score >= other.score for one in lines if one not in needed for other in left)
    if lines:
        assert (f"{len(left)} more rows" in " ".join(text.split())) == bool(left)
    whole = "".join(text.split())
    assert all("".join(line.label.split()) in whole or len(line.label) > 12 for line in lines)


def test_what_all_are_compared_with_stays_however_many_are_better():
    many = [line_of(f"mod[x={place}]", 0.9 - place / 100) for place in range(20)]
    controls = [line_of("dense", 1.0), line_of("base", 0.0), line_of("static_depth", 0.1), line_of("random_skip", 0.05)]
    shown = [line.label for line in first_lines(standing_of(*many, *controls))]
    assert len(shown) == 12 and shown[0] == "dense" and shown[-2:] == ["static_depth", "base"]
    assert "random_skip" not in shown and "mod[x=8]" in shown and "mod[x=9]" not in shown


def test_a_line_has_rank_score_difference_and_savings():
    static = line_of("static_depth", 0.6, rank=(2, 2), skipped=0.17, times={"batch 1": 0.12})
    mod = line_of("mod", 0.784, rank=(1, 1), over=difference(0.12, True), times={"batch 1": -0.314, "batch 8": 0.2})
    header, body = short(standing_of(line_of("dense", 1.0), static, mod), [static, mod, line_of("dense", 1.0)])
    assert header == ["rank", "method", "score", "vs static", "skipped", "time"]
    assert body[0] == ["2", "static_depth", "60 [50, 70]", "static", "17 %", "12 %"]
    assert body[1] == ["1", "mod", "78 [68, 88]", "+12 [+6, +18]", "20 %", "-31 %"]  # the least time of all settings
    assert body[2] == ["–", "dense", "100", "–", "–", "–"]
    away = line_of("calm", 0.5, saved=0.124, rank=None, status="nearest")
    header, body = short(standing_of(away, mod), [away, mod])
    assert header[-1] == "saved" and [line[-1] for line in body] == ["12.4 %", "15.0 %"] and body[0][0] == "–"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (rank(line_of("mod", rank=(2, 2))), "2"),
        (rank(line_of("mod", rank=(1, 3))), "1-3"),
        (score(line_of("mod", -0.001, interval=None)), "0"),
        (score(line_of("mod", -0.05)), "-5 [-15, 5]"),
        (score(Line("mod", "", ())), "–"),
        (over_static(line_of("mod"), standing_of()), "–"),
    ],
)
def test_numbers_as_texts(text, shown):
    assert text == shown


def test_what_a_reader_has_to_know_stands_under_the_list():
    lines = [
        line_of("static_depth", 0.9),
        line_of("mod", 0.8, eligible="layers 1-3"),
        line_of("calm", 0.7, eligible="layers 0-7"),
        line_of("free", 0.6, saved=0.1, rank=None, status="nearest"),
        line_of("gateskip", 0.5, rank=None, status="partial"),
        line_of("skiplayer", 0.5, rank=None, status="inert"),
    ]
    lines[1] = replace(lines[1], rows=(replace(lines[1].rows[0], target=0.25),))
    notes = " ".join(notes_of(standing_of(*lines, left_out=("nano_qa",))))
    for said in (
        "vs static: difference to static_depth",
        "Without a rank, as not within a point of the level on every task: free.",
        "Some seeds are missing of: gateskip.",
        "Without a rank, as the dial moves nothing: skiplayer.",
        "Trained towards 25 % and judged at this level.",
        "Tokens may skip at different sites (mod: layers 1-3; calm: layers 0-7).",
        "Left out, as dense is hardly better than a guess or base there: nano_qa.",
    ):
        assert said in notes
    assert "One seed" not in notes
    assert len(notes_of(standing_of(line_of("mod")))) == 1


@pytest.mark.parametrize("width", [12, 20, 40])
@pytest.mark.parametrize("method", ["gateskip[gate=scalar,kv=copy_below]@paper", "a_name_without_any_place" * 4, "mod"])
def test_a_name_is_broken_into_lines_and_loses_no_letter(method, width):
    lines = broken(method, width)
    assert "".join(lines) == method and max(map(len, lines)) <= width
    assert width < 40 or lines[0] in (method, "gateskip[gate=scalar,kv=copy_below]", method[:40])


@pytest.fixture
def table_of(tmp_path):
    """The `table.json` of a run with the rows of a board."""

    def write(board, name="run"):
        folder = tmp_path / name
        folder.mkdir()
        rows = [{key: value for key, value in row.plain().items() if value is not None} for row in board.rows]
        (folder / "table.json").write_text(json.dumps(rows))
        write_run(folder, {"tables": TABLES})
        return folder / "table.json"

    return write


def test_it_says_the_level_the_tasks_and_what_else_there_is(table_of, make_row):
    scores = {"dense": right(1), "base": right(0), "static_depth": right(0.6), "mod": right(0.8)}
    board = board_with(make_row, {"nano_math": scores})
    more = board_with(make_row, {"nano_math": scores}, 0.25)
    text = render([table_of(type(board)([*board.rows, *more.rows]))])
    assert text.startswith("15 % net FLOPs saved: nano_math (exact_match)\n")
    assert "At 15 %, mod keeps most (80 of 100)" in text and "Scores by task and 1 other level: --all." in text
    assert max(map(len, text.splitlines())) <= 80
    wide = render([table_of(board, "other")], wide=True)
    header = next(line for line in wide.splitlines() if line.startswith("rank"))
    assert re.split(r"\s{2,}", header) == [
        "rank", "method", "chooses", "score", "vs static", "nano_math", "saved", "skipped", "net", "projected",
        "shuffled", "time", "sites",
    ]  # fmt: skip
    (mod,) = [line for line in wide.splitlines() if " mod  " in line]
    assert re.split(r"\s{2,}", mod.strip())[1:7] == ["mod", "per token", "80", "–", "80.0", "15.0"]
    header, body = long(standing_of(line_of("mod", 0.8, lost=0.3, times={"batch 1": 0.1})))
    found = dict(zip(header, body[0], strict=True))
    assert (found["shuffled"], found["time"]) == ("-30", "batch 1: 10 %")


def test_without_a_scale_scores_are_shown_as_they_are_in_as_many_columns_as_fit(table_of, make_row):
    scores = {f"a_task_of_a_long_name_{task}": {"mod": right(0.5), "calm": right(0.3)} for task in range(6)}
    text = render([table_of(board_with(make_row, scores))])
    assert "50.0" in text and "30.0" in text and "--all" in text and max(map(len, text.splitlines())) <= 80
    one = render([table_of(board_with(make_row, {"a": {"mod": right(0.5)}}), "one")])
    assert "nothing is ranked" in one and "50.0" in one and "--all" not in one
