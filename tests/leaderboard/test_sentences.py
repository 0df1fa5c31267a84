"""Every sentence of findings: records that produce it, and records that miss its condition and must not."""

import itertools
from dataclasses import replace

import pytest
from swept_board import FEW, SPARING, TRAINED, section

from adaptive_bench.cli.headroom import verdict
from adaptive_bench.cli.leaderboard import findings
from adaptive_bench.cli.options import tables_of
from adaptive_bench.leaderboard.answer import answer
from adaptive_bench.leaderboard.standing import standings


def test_who_is_worse_than_no_training_is_said_with_certainty_only(board):
    nothing = {0.0: 60}
    said = section(
        findings(board({"base": nothing, "dense": {0.0: 95}, "mod": 20, "calm": 58})), "What training gained"
    )
    assert "`base`, the model before training, scores 60.0 [0.0, 100.0] %; p is corrected for 3 comparisons" in said
    assert "Behind it: `mod`; not" in said and "| **nano\\_math** | `mod` | -40.0 [-5" in said
    assert "not separated from it: `calm`; ahead of it: `dense`." in said
    said = section(findings(board({"base": nothing, "mod": 58, "calm": 58})), "What training gained")
    assert "Behind it: none; not separated from it: `mod`, `calm`; ahead of it: none." in said


def test_without_base_nothing_is_said_of_training(board):
    said = section(findings(board({"dense": {0.0: 95}, "mod": 20, "calm": 58})), "What training gained")
    assert said == "- **nano\\_math**: `base`, the model before training, was not measured."


def test_base_and_dense_stand_beside_the_ranks(board):
    text = findings(board({"base": {0.0: 60}, "dense": {0.0: 95}, "mod": 20, "calm": 58}))
    said = section(text, "Which methods are ahead")
    assert "Not ranked, as they save nothing: `base` 60.0 [0.0, 100.0] %, `dense` 95.0 [0.0, 100.0] %." in said
    assert "Not ranked" not in findings(board({"mod": 20, "calm": 58}))


def test_who_is_behind_dense_with_nothing_skipped_is_named_without_a_cause(board):
    text = findings(board({"dense": {0.0: 95}, "gateskip": 20, "mod": 93}, axis="tokens"))
    said = section(text, "What counting tokens leaves out")
    assert "with no token-branches skipped, these are behind `dense` 95.0 [0.0, 100.0] %: `gateskip` -75.0 [" in said
    assert "`mod`" not in said
    for curves in ({"dense": {0.0: 95}, "mod": 93, "calm": 94}, {"gateskip": 20, "mod": 93}):
        assert "behind `dense`" not in findings(board(curves, axis="tokens"))


def test_no_sentence_speaks_of_tokens_where_that_axis_is_missing(board):
    text = findings(board({"mod": 90, "calm": 10}))
    assert not section(text, "What counting tokens leaves out") and "Table 1" not in text and "The paper" not in text


def test_gates_that_cannot_be_told_apart_or_whose_saving_is_unknown(board):
    both = ("gateskip", "gateskip[shape=scalar]")
    said = section(findings(board(dict.fromkeys(both, 50))), "Vector and scalar gates")
    assert "is not told apart from" in said and "is ahead of" not in said and "vector gates skip 20.0 %" in said
    unknown = {name: {"saved_tokens": None} for name in both}
    said = section(findings(board(dict.fromkeys(both, 50), rows=unknown)), "Vector and scalar gates")
    assert "vector gates skip" not in said and "unknown" not in said
    assert section(findings(board({"gateskip": 50, "mod": 50})), "Vector and scalar gates") == ""


def test_what_idle_gates_save_is_said_where_it_was_measured(board):
    def said(saved_net):
        curves = {"gated": {0.0: 0}, "mod": 50, "calm": 50}
        return findings(board(curves, axis="tokens", rows={"gated": {"saved_net": saved_net}}))

    assert "- Gates that skip nothing save, net: `gated` on nano\\_math -16.0 %." in said(-0.16)
    assert "Gates that" not in said(None)


@pytest.mark.parametrize(
    ("changes", "claims", "phases"),
    [
        ({"claimed": 0.2, "claimed_minus_executed": 0.03}, True, False),
        ({"claimed": 0.2, "claimed_minus_executed": 0.02}, False, False),
        ({"claimed": None, "claimed_minus_executed": 0.03}, False, False),
        ({"saved_prefill_net": 0.2, "saved_decode_net": 0.1}, False, True),
        ({"saved_prefill_net": 0.2, "saved_decode_net": 0.16}, False, False),
        ({"saved_prefill_net": 0.2, "saved_decode_net": None}, False, False),
    ],
)
def test_claims_and_phases_are_said_beyond_their_tolerance(board, changes, claims, phases):
    text = findings(board({"mod": 90, "calm": 80}, rows={"mod": changes}))
    assert ("token-branches: claimed" in text) == claims and ("in prefill" in text) == phases


def test_a_comparison_carries_the_marks_of_the_method(board):
    """Far beyond or below what it was trained for, or trained for another axis: not judged without saying so."""
    curves = {"random_skip": 20, TRAINED: 40, "mod": 90, "calm": 90}
    off = {"beyond_target": True, "below_target": False, "target_axis": "tokens"}
    text = findings(board(curves, rows={"mod": off}))
    assert "`mod`‡¶ | +50.0 [" in section(text, "Who is better than static depth")
    assert "`mod`‡¶ by" in section(text, "What random controls show")
    assert "‡ beyond the saving" in section(text, "Marks") and "¶ trained for" in section(text, "Marks")
    plain = findings(board(curves, rows={"mod": dict.fromkeys(off)}))
    assert "‡" not in plain and "¶" not in plain
    below = findings(board({TRAINED: FEW, "mod": 90, "calm": 90}, rows={"mod": {"below_target": True}}))
    assert "`mod`§ | +70.0 [" in section(below, "Who is better than static depth")


def test_methods_are_held_against_the_control_at_the_cut_it_was_trained_for_alone(board):
    """At its own savings the number of layers is that of the point, not of the level next to it."""

    def said(trained_without):
        curves = {TRAINED: FEW, "mod": 90, "calm": 90}
        found = board(curves, rows={TRAINED: {"trained_without": trained_without}})
        layers = {0.0: 0.0, 0.11: 1 / 6, 0.22: 2 / 6}
        sweeps = found.answers["run"].sweeps[TRAINED, "bench", "nano_math", None]
        sweeps[:] = [
            replace(one, points=tuple(({**at, "tokens": layers[at["net"]]}, *rest) for at, *rest in one.points))
            for one in sweeps
        ]
        text = section(findings(found), "Who is better than static depth")
        return [line for line in text.split("\n") if line.startswith("- ")]

    (first,) = said(1 / 6)
    assert f"`{TRAINED}` scores 20.0 % at a saving of 11.0 %" in first
    (second,) = said(2 / 6)
    assert f"`{TRAINED}` scores 98.0 % at a saving of 22.0 %" in second
    (none,) = said(3 / 6)
    assert none.endswith("no comparison is made.")
    assert len(said(None)) == 2


def test_of_controls_trained_for_one_cut_methods_are_held_against_the_best(board):
    angular, search = (f"static_depth[rule={rule},trained=true]" for rule in ("angular", "search"))
    curves = {TRAINED: {0.0: 99, 0.13: 40, 0.26: 90}, angular: {0.0: 99, 0.11: 70, 0.22: 95}}
    curves |= {search: {0.0: 99, 0.14: 60, 0.27: 30}, "mod": 61, "dense": {0.0: 99}}
    rows = {name: {"trained_without": 1 / 6} for name in (TRAINED, search)} | {angular: {"trained_without": 2 / 6}}
    found = board(curves, rows=rows)
    for name in (TRAINED, angular, search):
        sweeps = found.answers["run"].sweeps[name, "bench", "nano_math", None]
        sweeps[:] = [
            replace(
                one,
                points=tuple(({**at, "tokens": layers / 6}, *rest) for layers, (at, *rest) in enumerate(one.points)),
            )
            for one in sweeps
        ]
    text = section(findings(found), "Who is better than static depth")
    first, second = (line for line in text.split("\n") if line.startswith("- "))
    assert f"`{search}` scores 60.0 % at a saving of 14.0 %" in first and "not separated from it: `mod`." in first
    assert f"`{angular}` scores 95.0 % at a saving of 22.0 %" in second and "behind it: `mod`;" in second
    (standing,) = standings(found)
    assert answer(found, standing).text.endswith("ties cutting layers.")


def test_marks_of_a_control_stand_behind_what_is_said_against_it(board):
    """Beyond what it was trained for, or trained for another number of layers."""

    def said(**changes):
        rows = {TRAINED: changes, "random_skip": {"status": "partial"} if changes else {}}
        found = board({"random_skip": 20, TRAINED: 40, "mod": 95}, rows=rows)
        (table,) = tables_of(found.rows)
        (row,) = [row for row in table["rows"] if row["method"] == "mod"]
        return row["cells"][-1]["over_static"], row["cells"][-1]["over_random"], verdict(found, "net")

    static, chance, told = said(beyond_target=True, trained_without=0.5)
    assert static.endswith("] ‡◊") and chance.endswith("] *")
    assert "ahead of random skipping (random_skip*); rank" in told  # the control was not trained for this
    assert f"and of {TRAINED}‡; rank" in said(beyond_target=True)[2]
    static, chance, told = said()
    assert static.endswith("]") and chance.endswith("]") and "ahead of random skipping; rank" in told


def test_examples_are_sorted_by_what_they_show(board):
    curves = {"mod": 90, "calm": 80, "free": 70}
    gaps = {"mod": 0.03, "calm": -0.2, "free": 0.1}
    rows = {name: {"claimed": 0.4, "claimed_minus_executed": gap} for name, gap in gaps.items()}
    told = section(findings(board(curves, rows=rows)), "Claimed and executed").split("\n")
    assert [line.split("`")[1] for line in told[2:]] == ["calm", "free", "mod"]
    decode = {"mod": 0.26, "calm": -0.1, "free": 0.1}
    rows = {name: {"saved_prefill_net": 0.2, "saved_decode_net": saved} for name, saved in decode.items()}
    told = section(findings(board(curves, rows=rows)), "Prefill and decode").split("\n")
    assert [line.split("`")[1] for line in told[2:]] == ["calm", "free", "mod"]


def test_no_words_of_cause_stand_in_any_findings(board):
    """Of whatever rows: `because` needs an experiment of its own."""
    curves = {"base": {0.0: 60}, "dense": {0.0: 95}, "random_skip": 10, TRAINED: FEW, "layerskip": 90, "mod": 70}
    curves |= {"gateskip": 30, "gateskip[shape=scalar]": 80}
    for axis, rows in itertools.product(("net", "tokens"), ({}, SPARING)):
        text = findings(board(curves, axis=axis, rows=rows), axis=axis)
        assert not [word for word in ("because", "Why", "did not cost", "due to", "costs") if word in text]
