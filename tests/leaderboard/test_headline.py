"""The sentences on top of a list: every claim under its condition, and at most 25 words whatever the list."""

import pytest
from hypothesis import given
from swept_board import difference, line_of, standing_of, standings

from adaptive_bench.leaderboard.list_text import headline, is_real

DENSE, BASE = line_of("dense", 1.0), line_of("base", 0.0)
STATIC = line_of("static_depth[trained=true]", 0.6, rank=(2, 2))
CHANCE = line_of("random_skip", 0.2, rank=(3, 3), over=difference(-0.4, True))
BEST = line_of("mod", 0.8, over=difference(0.2, True))
UNCERTAIN = line_of("mod", 0.61, rank=(1, 2), over=difference(0.01, False))
TIED = line_of("calm", 0.75, rank=(1, 2), over=difference(0.15, True))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([line_of("static_depth", 0.9)], "static_depth alone meets this saving (90 of 100)."),
        ([BEST], "mod alone meets this saving (80 of 100); leaving out layers was not measured here."),
        ([STATIC, CHANCE, BEST], "mod keeps most (80 of 100), and beats leaving out layers (60)."),
        ([STATIC, BEST, TIED], "mod keeps most (80 of 100), level with 1 other, and beats leaving out layers (60)."),
        (
            [line_of("static_depth", 0.6, rank=(1, 2)), UNCERTAIN],
            "mod keeps most (61 of 100), level with 1 other, not certainly more than leaving out layers (60).",
        ),
        ([line_of("static_depth", 0.9), line_of("mod", 0.8, over=difference(-0.1, True), rank=(2, 2))],
         "static_depth keeps most (90 of 100): nothing that chooses tokens beats leaving out layers."),
        ([line_of("static_depth", 0.9), line_of("mod", 0.8, over=difference(-0.1, False), rank=(1, 2))],
         "static_depth keeps most (90 of 100), level with 1 other: "
         "nothing that chooses tokens is shown to beat leaving out layers."),
        ([line_of("static_depth", 0.9), CHANCE], "static_depth keeps most (90 of 100)."),
        (
            [line_of("random_skip", 0.9), STATIC, line_of("mod", 0.7, over=difference(0.1, True), rank=(2, 3))],
            "random_skip keeps most (90 of 100): nothing that chooses tokens beats it.",
        ),
        ([CHANCE, BEST], "mod keeps most (80 of 100); leaving out layers was not measured here."),
        (
            [line_of("static_depth", 0.96, saved=0.125, rank=None, status="nearest"),
             line_of("static_depth[unit=branch]", 0.7, saved=0.22, rank=None, status="nearest"), BEST, TIED],
            "mod keeps most (80 of 100), level with 1 other; leaving out layers keeps 96 at 12.5 %.",
        ),
        (
            [line_of("mod", 0.9, saved=0.2, rank=None, status="nearest")],
            "nothing is ranked: no method was measured within a point of this saving on every task.",
        ),
    ],
)  # fmt: skip
def test_every_claim_has_its_condition(lines, said):
    assert headline(standing_of(DENSE, BASE, *lines)) == f"At 15 %, {said}"


def test_without_a_scale_nothing_is_ranked():
    lines = [line_of(name, 0.5, rank=None) for name in ("dense", "mod")]
    bare = [type(line)(line.label, line.chooses, line.rows) for line in lines]
    assert headline(standing_of(*bare, left_out=("nano_math",))) == (
        "At 15 %, nothing is ranked: the dense model is not known to be clearly better than a guess."
    )
    assert is_real(standing_of(*bare)) == ""


def test_a_difference_that_no_test_corrected_for_beats_nothing():
    assert "not certainly more than leaving out layers" in headline(standing_of(STATIC, line_of("mod", 0.8)))


@pytest.mark.parametrize(
    ("net", "projected", "time", "verdict"),
    [
        (0.15, 0.16, 0.08, "holds by every measure"),
        (0.15, 0.16, 0.07, "disagree"),  # by more than a factor of two
        (0.15, 0.16, -0.2, "disagree"),  # in sign
        (0.15, 0.31, 0.2, "disagree"),
        (0.15, 0.16, 0.0, "disagree"),  # nothing saved is no saving
        (-0.1, 0.005, -0.15, "saves nothing by any measure"),
    ],
)
def test_a_saving_is_real_where_the_measures_agree_in_sign_and_within_a_factor_of_two(net, projected, time, verdict):
    best = line_of("mod", net=net, projected=projected, times={"batch 8": time + 0.3, "batch 1": time})
    said = is_real(standing_of(best, CHANCE))
    assert verdict in said and f"{100 * net:.0f} % of net FLOPs" in said and f"{100 * time:.0f} % of the time" in said


def test_that_time_was_not_measured_is_said():
    for measured, told in (({}, ""), ({"projected": 0.16}, ", 16 % if priced at a larger model's size")):
        said = is_real(standing_of(line_of("mod", net=0.15, **measured)))
        assert said == f"It saves 15 % of net FLOPs{told}; time was not measured (--time)."


@given(standings())
def test_no_sentence_is_longer_than_25_words_and_none_claims_what_no_test_says(standing):
    said = headline(standing)
    assert max(len(said.split()), len(is_real(standing).split())) <= 25
    best = next(iter(standing.ranked), None)
    beats = best is not None and best.over_static is not None and best.over_static.apart
    if "and beats leaving out layers" in said:
        assert beats and best.over_static.difference > 0 and best.chooses.startswith("per")
        assert standing.static in {line.label for line in standing.ranked}
    assert ("nothing is ranked" in said) == (best is None)
    assert ("nothing is kept" in said) == (best is not None and round(100 * best.score) <= 0)
    if best is not None and "nothing is kept" not in said:
        assert best.label in said and best.score == max(line.score for line in standing.ranked)
