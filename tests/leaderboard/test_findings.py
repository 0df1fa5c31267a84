"""Sentences of findings carry the numbers of the rows, and claim only what a test carries."""

import json
from dataclasses import replace

import numpy as np
import pytest

from adaptive_bench.cli.leaderboard import findings
from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.answers import Answers, SweptAnswers
from adaptive_bench.leaderboard.findings import write_findings
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.store.results import write_run

METRIC = "exact_match,strict-match"


@pytest.fixture
def board(make_row):
    """Methods that are right on the first so many of 100 documents, alike for three seeds."""

    def make(axis="net", saved_net=0.15, **right):
        rows, answers = [], Answers()
        for method, count in right.items():
            name = method.replace("scalar", "gateskip[shape=scalar]")
            scores = (np.arange(100) < count).astype(float)
            points = (({axis: 0.0}, {}, {METRIC: scores}), ({axis: 0.3}, {}, {METRIC: scores}))
            place = (name, "bench", "nano_math", None)
            answers.sweeps[place] = [SweptAnswers(seed, tuple(range(100)), points) for seed in (1, 2, 3)]
            about = {"saved_tokens": 0.4, "claimed": 0.4, "claimed_minus_executed": 0.1}
            about |= {"saved_net": saved_net, "saved_prefill_net": 0.2, "saved_decode_net": 0.02}
            row = make_row(method=name, axis=axis, level=0.15, score=count / 100, low=0.0, high=1.0, **about)
            rows.append(checked(row))
        return board_of(rows, answers={"run": answers})

    return make


def test_what_a_test_tells_apart_is_said_with_its_figures(board):
    text = findings(board(random_skip=10, mod=90, calm=88))
    rows = ["| method | score | rank |", "| --- | --- | --- |", "| `mod` | 90.0⚠ [0.0, 100.0] % | 1 to 2 |"]
    rows += ["| `calm` | 88.0⚠ [0.0, 100.0] % | 1 to 2 |", "| `random_skip` | 10.0⚠ [0.0, 100.0] % | 3 |"]
    assert "**nano\\_math** by saved net FLOPs:\n\n" + "\n".join(rows) + "\n\n" in text
    assert "- ⚠ the dial claims" in text
    assert "not told apart" not in text
    assert "2 of 2 methods that decide per token are ahead of it (best: `mod`⚠ by +80.0 [" in text


def test_a_note_goes_before_the_findings(board):
    plain, noted = (findings(board(mod=90, calm=88), note=note) for note in ("", "Of an earlier model."))
    title, rest = plain.split("\n\n", 1)
    assert noted == f"{title}\n\nOf an earlier model.\n\n{rest}"


def test_nothing_is_ahead_where_nothing_is_told_apart(board):
    text = findings(board(random_skip=50, mod=51))
    assert (
        "0 of 1 methods that decide per token are ahead of it; behind it: none; not separated from it: `mod`⚠." in text
    )


def test_who_is_certainly_worse_is_not_called_not_separated(board):
    static = "static_depth[trained=true]"
    text = findings(board(**{"random_skip": 50, static: 53, "mod": 90, "calm": 52, "free": 10}))
    assert "1 of 3 methods that decide per token are ahead of it (best: `mod`⚠ by +40.0 [" in text
    assert "behind it: `free`⚠; not separated from it: `calm`⚠." in text
    assert (
        f"`{static}` scores 53.0⚠ [0.0, 100.0] %; p is corrected for 4 comparisons with it. Ahead of it: `mod`⚠; behind"
        in text
        and "| `mod`⚠ | +37.0 [+2" in text
    )
    assert (
        "; behind it: `free`⚠; not separated from it: `calm`⚠." in text
        and "| `free`⚠ | -43.0 [-5" in text
        and "| `calm`⚠ | -1.0 [" in text
    )


def test_gates_claims_and_phases_have_their_sentences(board):
    text = findings(board(gateskip=30, scalar=80))
    assert "`gateskip[shape=scalar]`⚠ is ahead of `gateskip`⚠, +50.0 [" in text
    assert "vector gates skip 40.0 % of the token-branches" in text
    assert "| token-branches: claimed | executed skips |\n" in text and "| 40.0 % | 30.0 % |" in text
    assert "| net saving in prefill | in decode |\n" in text and "| 20.0 % | 2.0 % |" in text


def test_tuned_gates_are_compared_like_their_defaults(board, tmp_path):
    facts = {"gateskip[sparsity_weight=0.01]": {"variant": "gateskip"}}
    (tmp_path / "methods.json").write_text(json.dumps({"methods": facts}))
    write_run(tmp_path, {})
    found = replace(board(**{"gateskip[sparsity_weight=0.01]": 30, "scalar": 80}), folders=[tmp_path])
    assert "`gateskip[shape=scalar]`⚠ is ahead of `gateskip[sparsity_weight=0.01]`" in findings(found)


def test_the_order_stands_beside_the_paper_s_on_its_axis(board):
    text = findings(board(axis="tokens", random_skip=10, mod=90))
    assert "| `mod` (1) | GateSkip (ours) 22.14 ± 1.36 |\n| `random_skip` (2) | FREE" in text


def test_those_who_skip_much_and_save_little_are_named(board):
    text = findings(board(axis="tokens", saved_net=0.02, calm=10, mod=90))
    assert (
        "skip 15.0 % of the token-branches, these have a net saving at least 5 points lower: `calm` 2.0 %, `mod` 2.0 %."
        in text
    )
    assert "points lower" not in findings(board(axis="tokens", calm=10, mod=90))


def test_a_level_without_scores_is_refused(tmp_path, make_row):

    (tmp_path / "table.json").write_text(json.dumps([make_row()]))
    write_run(tmp_path, {})
    with pytest.raises(UsageError, match=r"There is 0\.1"):
        write_findings([tmp_path / "table.json"], tmp_path / "findings.md")
