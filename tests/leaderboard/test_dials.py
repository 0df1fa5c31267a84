"""The dial tables of a board: on its page, in its Markdown and as CSV."""

import csv
import io

from adaptive_bench.cli.leaderboard import findings
from adaptive_bench.leaderboard.dials import as_lines, sections
from adaptive_bench.leaderboard.page import render
from adaptive_bench.leaderboard.site import _csv, as_markdown

TITLE = "Dials that cannot move a task"


def test_every_measured_dial_value_stands_on_the_page_in_the_markdown_and_in_the_csv(board):
    some = board({"mod": {0.0: 90, 0.11: 60, 0.22: 30}})
    (section,) = sections(some)
    assert section["lines"] == [
        ["mod", "–", "0", "–", "0.0", "–", "–", "90.0", "3"],
        ["mod", "–", "0.11", "–", "11.0", "–", "–", "60.0", "3"],
        ["mod", "–", "0.22", "–", "22.0", "–", "–", "30.0", "3"],
    ]
    lines = list(csv.DictReader(io.StringIO(_csv(as_lines(some)))))
    assert [(float(one["dial"]), float(one["saved_net"]), float(one["score"])) for one in lines] == [
        (0.0, 0.0, 0.9),
        (0.11, 0.11, 0.6),
        (0.22, 0.22, 0.3),
    ]
    page, text = render(some, "net"), as_markdown(some, "net")
    assert "Dial values of nano_math" in page and "<td>0.11</td>" in page and "dials.csv" in page
    assert "## Dial values: nano\\_math" in text


def test_a_board_without_dial_values_shows_none(board):
    some = board({"mod": {0.0: 90, 0.22: 30}})
    some.answers["run"].sweeps.clear()
    assert sections(some) == [] and as_lines(some) == []
    assert "Dial values" not in render(some, "net") and "Dial values" not in as_markdown(some, "net")


def test_findings_name_a_dial_that_moves_no_score_and_no_other(board):
    moving = findings(board({"mod": {0.0: 90, 0.22: 30}}))
    assert TITLE not in moving
    still = findings(board({"mod": {0.0: 90, 0.22: 30}, "calm": {0.0: 40, 0.22: 40}}))
    said = still.partition(f"## {TITLE}\n\n")[2].splitlines()[0]
    assert said.startswith("- The dial of calm cannot move the score of nano\\_math")
    assert "from 0.0 to 22.0 % of saved net FLOPs" in said and "mod" not in said
