"""Every sentence of findings: records that produce it, and records that miss its condition and must not."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from adaptive_bench import registry
from adaptive_bench.leaderboard.answers import Answers, SweptAnswers
from adaptive_bench.leaderboard.findings import findings
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.grid import STATIC, grids
from adaptive_bench.leaderboard.markdown import written
from adaptive_bench.leaderboard.rows import checked
from adaptive_bench.leaderboard.tables import tables_of
from adaptive_bench.leaderboard.terminal import render
from adaptive_bench.leaderboard.verdict import verdict
from adaptive_bench.method import method_class
from adaptive_bench.spec import MethodSpec

METRIC = "exact_match,strict-match"
TRAINED, UNTRAINED = "static_depth[trained=true]", "static_depth"
DENSE_SWEEP = tuple(number / 100 for number in range(0, 31))


@pytest.fixture
def board(make_row):
    """Methods with what they get right, of 100 documents, at measured savings; three seeds, rows at 0 and 15 %."""

    def make(curves, axis="net", rows=None):
        """`curves`: by method a number for every saving, or numbers by saving; `rows`: by method more of its rows."""
        found, answers = [], Answers()
        for method, curve in curves.items():
            points = dict.fromkeys(DENSE_SWEEP, curve) if isinstance(curve, int) else curve
            savings = sorted(points)
            measured = tuple(
                ({axis: saving}, {}, {METRIC: (np.arange(100) < points[saving]).astype(float)}) for saving in savings
            )
            place = (method, "bench", "nano_math", None)
            answers.sweeps[place] = [
                SweptAnswers(seed, tuple(range(100)), measured, tuple(savings)) for seed in (1, 2, 3)
            ]
            for level in (0.0, 0.15):
                about = {"method": method, "axis": axis, "level": level, "saved_net": 0.15, "saved_tokens": 0.2}
                about |= (rows or {}).get(method, {})
                if savings[0] <= level <= savings[-1]:
                    score = float(np.interp(level, savings, [points[saving] / 100 for saving in savings]))
                    below, above = max(s for s in savings if s <= level), min(s for s in savings if s >= level)
                    about |= {"gap": above - below, "distance": max(level - below, above - level)}
                    found.append(checked(make_row(**about | {"score": score, "low": 0.0, "high": 1.0})))
        return board_of(found, answers={"run": answers})

    return make


def section(text, title):
    """The sentences under a title; empty without it."""
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0].rstrip()


def test_who_is_worse_than_no_training_is_said_with_certainty_only(board):
    nothing = {0.0: 60}
    said = section(
        findings(board({"base": nothing, "dense": {0.0: 95}, "mod": 20, "calm": 58})), "What training was worth"
    )
    assert "`base`, the model before training, has 60.0 [0.0, 100.0] %, p corrected for 3 comparisons" in said
    assert "Worse than no training: `mod` -40.0 [-5" in said
    assert "not separated from it: `calm`; better: `dense`." in said
    said = section(findings(board({"base": nothing, "mod": 58, "calm": 58})), "What training was worth")
    assert "Worse than no training: none; not separated from it: `mod`, `calm`; better: none." in said


def test_without_base_nothing_is_said_of_training(board):
    said = section(findings(board({"dense": {0.0: 95}, "mod": 20, "calm": 58})), "What training was worth")
    assert said == "- **nano\\_math**: `base`, the model before training, was not measured."


def test_base_and_dense_stand_beside_the_ranks(board):
    text = findings(board({"base": {0.0: 60}, "dense": {0.0: 95}, "mod": 20, "calm": 58}))
    said = section(text, "Which methods are ahead")
    assert "Without ranks, saving nothing: `base` 60.0 [0.0, 100.0] %, `dense` 95.0 [0.0, 100.0] %." in said
    assert "Without ranks" not in findings(board({"mod": 20, "calm": 58}))


SPARING = {"mod": {"eligible": "layers 1, 3"}, "random_skip": {"eligible": "layers 0-3"}}


def test_a_confounded_site_set_is_said_wherever_the_two_are_compared(board):
    curves = {"random_skip": 20, TRAINED: 40, "mod": 90}
    alike = {name: {"eligible": "layers 0-3"} for name in curves}
    found = board(curves, rows=alike | SPARING)
    text = findings(found)
    where = "ayers 0-3: `random_skip`, `static_depth[trained=true]`; layers 1, 3: `mod`."
    assert where in section(text, "Where tokens may skip")
    clause = "They may skip at other sites than `{}` (layers 0-3): `mod` layers 1, 3."
    assert clause.format(TRAINED) in section(text, "Who is better than static depth")
    assert clause.format("random_skip") in section(text, "What random controls show")
    note = "Where methods may skip differs (layers 0-3: random_skip, static_depth[trained=true]; layers 1, 3: mod)"
    assert note in written(found.rows) and note in render(found.lines, wide=True)
    fair = board(curves, rows=alike)
    assert "sites" not in findings(fair) and "Where methods may skip" not in written(fair.rows)


def test_sites_that_are_not_recorded_are_said_to_be_unknown_and_not_to_differ(board):
    text = findings(board({"random_skip": 20, "mod": 90}))
    said = section(text, "Where tokens may skip")
    assert said.startswith("- **nano\\_math**: not recorded for any method") and "other sites" not in text
    half = board({"random_skip": 20, "mod": 90, "calm": 90}, rows={"mod": SPARING["mod"]})
    assert "not recorded for `calm`, `random_skip`" in section(findings(half), "Where tokens may skip").replace(
        "`random_skip`, `calm`", "`calm`, `random_skip`"
    )


def test_methods_that_skip_nowhere_spare_no_sites(board):
    rows = {"dense": {"eligible": "none"}, "mod": {"eligible": "layers 0-3"}, "calm": {"eligible": "layers 0-3"}}
    found = board({"dense": {0.0: 95}, "mod": 20, "calm": 58}, rows=rows)
    assert section(findings(found), "Where tokens may skip") == ""


FEW = {0.0: 99, 0.11: 20, 0.22: 98}


def test_an_interpolated_control_is_marked_and_asked_where_it_was_measured(board):
    found = board({TRAINED: FEW, "mod": 95, "calm": {0.0: 95, 0.3: 95}})
    (row,) = [row for row in found.rows if row.method == TRAINED and row.level == 0.15]
    (grid,) = grids(found.rows)
    assert grid.score(TRAINED, 0.15).startswith(f"{100 * row.score:.1f}≈")
    first, second = section(findings(found), "Who is better than static depth").split("\n")
    where = "without a measured point within 2 points of 15 % on one side or both"
    assert f"`{TRAINED}`, {where}, has 20.0 % at 11.0 %; p" in first
    assert "ahead `mod` +75.0 [" in first and "`calm`≈ +75.0 [" in first  # calm was measured at 0 and 30 % alone
    assert "has 98.0 % at 22.0 %" in second and "ahead none" in second
    assert "not separated `mod` -3.0 [" in second


def test_what_the_page_says_against_a_control_has_its_mark(board):
    def said(control):
        (table,) = tables_of(board({TRAINED: control, "mod": 95}).rows)
        (row,) = [row for row in table["rows"] if row["method"] == "mod"]
        return row["cells"][-1]["over_static"]

    assert said(FEW).endswith("] ≈") and said(40).endswith("]")


def test_a_control_that_was_measured_nearby_is_asked_at_the_level(board):
    said = section(findings(board({TRAINED: 40, "mod": 95})), "Who is better than static depth")
    assert said.startswith(f"- **nano\\_math**, `{TRAINED}` 40.0 [") and "measured point" not in said


def test_a_control_without_points_between_5_and_30_percent_says_nothing(board):
    said = section(findings(board({TRAINED: {0.0: 99, 0.4: 10}, "mod": 95})), "Who is better than static depth")
    assert said.endswith("within 2 points of 15 % on one side or both: nothing is said against it.")


def test_only_what_every_seed_was_measured_at_is_a_point_of_the_control(board):
    found = board({TRAINED: FEW, "mod": 95})
    sweeps = found.answers["run"].sweeps[TRAINED, "bench", "nano_math", None]
    sweeps[0] = replace(sweeps[0], dials=(0.0, 0.11, 0.25))  # as if seed 1 had been asked for something else
    said = section(findings(found), "Who is better than static depth")
    assert "at 11.0 %" in said and "at 22.0 %" not in said


def test_a_method_whose_seeds_do_not_all_reach_the_control_s_saving_is_marked_there(board):
    found = board({TRAINED: FEW, "mod": 95, "calm": 95})
    sweeps = found.answers["run"].sweeps["mod", "bench", "nano_math", None]
    sweeps[0] = replace(sweeps[0], points=sweeps[0].points[:20], dials=sweeps[0].dials[:20])  # up to 19 %
    first, second = section(findings(found), "Who is better than static depth").split("\n")
    assert "`mod` +75.0 [" in first and "`mod`* -3.0 [" in second and "`calm` -3.0 [" in second


def test_the_verdict_is_not_held_against_a_control_that_was_measured_elsewhere(board):
    told = verdict(board({"random_skip": 20, TRAINED: FEW, "mod": 95}), "net")
    assert f"({TRAINED}≈" not in told and "(random_skip" not in told
    assert f"ahead of random skipping ({TRAINED}: no measured point within 2 points of this saving on one" in told
    told = verdict(board({"random_skip": 20, TRAINED: 95, "mod": 95}), "net")
    assert f"but not of the control {TRAINED}" in told and "measured point" not in told


def test_who_decides_nothing_per_token_belongs_to_the_static_family(board):
    curves = {"random_skip": 20, TRAINED: 40, "layerskip": 95, "mod": 90}
    found = board(curves)
    text = findings(found)
    said = section(text, "Who is better than static depth")
    assert "ahead `mod` +50.0 [" in said and "deciding nothing per token, ahead `layerskip` +55.0 [" in said
    assert "1 of 1 methods that decide per token are ahead of it, `mod`" in section(text, "What random controls show")
    assert "mod keeps" in verdict(found, "net") or "mod scores" in verdict(found, "net")
    assert "but not of the control layerskip" in verdict(found, "net")
    assert "Deciding nothing per token, as static_depth: layerskip." in written(found.rows)
    assert "eciding nothing" not in findings(board({TRAINED: 40, "mod": 90})) + written(board({UNTRAINED: 40}).rows)


def test_the_static_family_is_that_of_the_methods_themselves():
    skipping_nothing = {"dense", "base", "gated"}
    found = {
        name
        for name in registry.names("methods")
        if not (method := method_class(MethodSpec.parse(name))).adapts and not method.draws
    }
    assert found - skipping_nothing == set(STATIC)


LOST = "What is lost with other tokens' decisions"
WORTH = {"decisions_worth": 0.1, "decisions_low": 0.02, "decisions_high": 0.18, "shuffled_score": 0.8}
WORTH |= {"shuffled_apart": 0.0}


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({}, "Loses with other tokens' decisions: `mod` +10.0 [+2.0, +18.0]."),
        ({"decisions_low": -0.02}, "No loss shown: `mod` +10.0 [-2.0, +18.0]."),
        ({"decisions_low": 0.0}, "No loss shown: `mod` +10.0 [+0.0, +18.0]."),
        (
            {"decisions_worth": -0.1, "decisions_low": -0.2, "decisions_high": -0.01},
            "Better with other tokens' decisions: `mod` -10.0 [-20.0, -1.0].",
        ),
        (
            {"shuffled_apart": 0.03},
            "Nothing can be said, the two save net FLOPs that are more than 2 points apart: `mod` +10.0",
        ),
        (
            {"shuffled_apart": None},
            "Nothing can be said, the control was not measured at the method's dial values: `mod` +10.0",
        ),
        ({"decisions_low": None, "decisions_high": None}, "not measured for any method"),
    ],
)
def test_who_loses_with_other_tokens_decisions(board, changes, saying):
    text = findings(board({"mod": 90, "layerskip": 90}, rows={"mod": WORTH | changes}))
    said = section(text, LOST)
    assert saying in said and "worth" not in said and "choosing" not in text
    sayings = (
        "oses with other tokens' decisions:",
        "o loss shown",
        "etter with other",
        "points apart",
        "method's dial values",
        "not measured for any",
    )
    assert sum(one in said for one in sayings) == 1 and "layerskip" not in said


POSITION = "position_skip[trained=true]"
NO_FLOOR = f"No floor: `{POSITION}`, which skips by position alone, was not measured."


def test_what_skipping_by_position_loses_stands_beside_what_methods_lose(board):
    """It is a control: neither one of those that decide per token, nor named as best."""
    rows = {"mod": WORTH, POSITION: WORTH | {"decisions_worth": 0.3, "decisions_low": 0.1, "decisions_high": 0.4}}
    found = board({"random_skip": 20, "mod": 90, POSITION: 95}, rows=rows)
    text = findings(found)
    said = section(text, LOST)
    assert said.endswith(
        "Loses with other tokens' decisions: `mod` +10.0 [+2.0, +18.0]. The floor, skipping by position alone and "
        f"whatever the text says: `{POSITION}` +30.0 [+10.0, +40.0]."
    )
    assert "1 of 1 methods that decide per token are ahead of it, `mod`" in section(text, "What random controls show")
    assert verdict(found, "net").partition("on nano_math ")[2].startswith("mod ")
    assert "no floor" not in render(found.lines, wide=True)


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"method": "position_skip"},
        {"shuffled_apart": None},
        {"shuffled_apart": 0.03},
        {"decisions_low": None, "decisions_high": None},
    ],
)
def test_there_is_no_floor_where_habit_was_not_measured(board, changes):
    """Not in the run, never trained to skip, apart from its control, or without an interval."""
    changes = dict(changes or {})
    name = changes.pop("method", POSITION)
    curves = {"mod": 90, "calm": 80} | ({name: 70} if changes or name != POSITION else {})
    found = board(curves, rows={"mod": WORTH, name: WORTH | changes})
    said = section(findings(found), LOST)
    assert said.endswith(NO_FLOOR) and "The floor" not in said
    assert "no floor: position_skip" in render(found.lines, wide=True)


def test_who_loses_most_comes_first(board):
    rows = {"mod": WORTH, "calm": WORTH | {"decisions_worth": 0.3}, "free": WORTH | {"decisions_worth": 0.2}}
    said = section(findings(board({"mod": 90, "free": 85, "calm": 80}, rows=rows)), LOST)
    assert [name for name in said.split("`") if name in rows] == ["calm", "free", "mod"]


def test_methods_whose_control_was_not_measured_are_named(board):
    said = section(findings(board({"mod": 90, "calm": 80}, rows={"mod": WORTH})), LOST)
    assert "Loses with other tokens' decisions: `mod` +10.0 [+2.0, +18.0]; not measured: `calm`." in said


def test_who_is_behind_dense_with_nothing_skipped_is_named_without_a_cause(board):
    text = findings(board({"dense": {0.0: 95}, "gateskip": 20, "mod": 93}, axis="tokens"))
    said = section(text, "What counting tokens leaves out")
    assert "with no token-branch skipped these are behind `dense` 95.0 [0.0, 100.0] %: `gateskip` -75.0 [" in said
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
    assert ("claims to skip" in text) == claims and ("in prefill" in text) == phases


def test_a_comparison_carries_the_marks_of_the_method(board):
    """Far beyond or below what it was trained for, or trained for another axis: not judged without saying so."""
    curves = {"random_skip": 20, TRAINED: 40, "mod": 90, "calm": 90}
    off = {"beyond_target": True, "below_target": False, "target_axis": "tokens"}
    text = findings(board(curves, rows={"mod": off}))
    assert "`mod`‡¶ +50.0 [" in section(text, "Who is better than static depth")
    assert "`mod`‡¶ by" in section(text, "What random controls show")
    assert "‡ beyond the saving" in section(text, "Marks") and "¶ trained for" in section(text, "Marks")
    plain = findings(board(curves, rows={"mod": dict.fromkeys(off)}))
    assert "‡" not in plain and "¶" not in plain
    unconverged = board(curves)
    for row in unconverged.rows:
        row.not_converged = row.method == "mod"
    text = findings(unconverged)
    assert "`mod`# +50.0 [" in section(text, "Who is better than static depth") and "# not converged" in text
    below = findings(board({TRAINED: FEW, "mod": 90, "calm": 90}, rows={"mod": {"below_target": True}}))
    assert "`mod`§ +70.0 [" in section(below, "Who is better than static depth")


def test_the_control_carries_its_own_marks_where_its_number_is_used(board):
    """At its own savings the number of layers is that of the point, not of the level next to it."""

    def said(trained_without, not_converged=False):
        curves = {TRAINED: FEW, "mod": 90, "calm": 90}
        found = board(curves, rows={TRAINED: {"trained_without": trained_without}})
        for row in found.rows:
            row.not_converged = not_converged and row.method == TRAINED
        layers = {0.0: 0.0, 0.11: 1 / 6, 0.22: 2 / 6}
        sweeps = found.answers["run"].sweeps[TRAINED, "bench", "nano_math", None]
        sweeps[:] = [
            replace(one, points=tuple(({**at, "tokens": layers[at["net"]]}, *rest) for at, *rest in one.points))
            for one in sweeps
        ]
        text = findings(found)
        return text, section(text, "Who is better than static depth").split("\n")

    text, (first, second) = said(1 / 6)
    assert f"`{TRAINED}`, without" in first and f"`{TRAINED}`◊, without" in second
    assert "◊ not trained for the number of layers" in section(text, "Marks")
    _, (first, second) = said(2 / 6)
    assert f"`{TRAINED}`◊, without" in first and f"`{TRAINED}`, without" in second
    _, (first, second) = said(1 / 6, not_converged=True)
    assert f"`{TRAINED}`#, without" in first and f"`{TRAINED}`◊#, without" in second
    text, (first, second) = said(None)
    assert "◊" not in text and f"`{TRAINED}`, without" in first


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
    assert f"ahead of random skipping (random_skip*) and of {TRAINED}‡◊; rank" in told
    static, chance, told = said()
    assert static.endswith("]") and chance.endswith("]") and "ahead of random skipping; rank" in told


def test_examples_are_sorted_by_what_they_show(board):
    curves = {"mod": 90, "calm": 80, "free": 70}
    gaps = {"mod": 0.03, "calm": -0.2, "free": 0.1}
    rows = {name: {"claimed": 0.4, "claimed_minus_executed": gap} for name, gap in gaps.items()}
    told = section(findings(board(curves, rows=rows)), "Claimed and executed").split("\n")
    assert [line.split("`")[1] for line in told] == ["calm", "free", "mod"]
    decode = {"mod": 0.26, "calm": -0.1, "free": 0.1}
    rows = {name: {"saved_prefill_net": 0.2, "saved_decode_net": saved} for name, saved in decode.items()}
    told = section(findings(board(curves, rows=rows)), "Prefill and decode").split("\n")
    assert [line.split("`")[1] for line in told] == ["calm", "free", "mod"]


def test_no_words_of_cause_stand_in_any_findings(board):
    """Of whatever rows: `because` needs an experiment of its own."""
    curves = {"base": {0.0: 60}, "dense": {0.0: 95}, "random_skip": 10, TRAINED: FEW, "layerskip": 90, "mod": 70}
    curves |= {"gateskip": 30, "gateskip[shape=scalar]": 80}
    for axis, rows in itertools.product(("net", "tokens"), ({}, SPARING)):
        text = findings(board(curves, axis=axis, rows=rows), axis=axis)
        assert not [word for word in ("because", "Why", "did not cost", "due to", "costs") if word in text]
