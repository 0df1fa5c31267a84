import pytest

from adaptive_bench.leaderboard.markdown import render


def _lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_score_is_printed_with_its_interval_and_its_savings(make_row):
    score, saving = _lines(render([make_row()]), "| gateskip")
    assert "89.8 [84.0, 95.1]" in score
    assert _cells(saving) == ["gateskip", "10 %", "15.0", "12.5", "10.0", ""]


def test_level_outside_the_measured_range_is_not_a_number(make_row):
    gone = make_row(level=0.25, score=None, low=None, high=None, status="outside", saved_tokens=None)
    score, *savings = _lines(render([make_row(), gone]), "| gateskip")
    assert score.count("n/a") == 1
    assert [_cells(line)[1] for line in savings] == ["10 %"]


@pytest.mark.parametrize(("status", "mark", "meaning"), [("partial", "*", "seed"), ("inert", "†", "moves nothing")])
def test_score_with_a_reservation_is_marked_and_explained(make_row, status, mark, meaning):
    text = render([make_row(status=status)])
    assert f"89.8{mark} [84.0, 95.1]" in text
    assert any(meaning in line for line in _lines(text, mark))
    assert _lines(render([make_row()]), mark) == []


def test_single_seed_without_interval(make_row):
    assert "| 89.8 |" in " ".join(render([make_row(low=None, high=None)]).split())


def test_one_table_per_task_metric_and_axis_in_the_order_of_the_rows(make_row):
    rows = [
        make_row(task="b"),
        make_row(task="a"),
        make_row(task="b", axis="tokens"),
        make_row(task="b", metric="acc,none"),
    ]
    assert [line.removeprefix("## ") for line in _lines(render(rows), "## ")] == [
        "b: exact_match,strict-match (%) by saved net FLOPs",
        "a: exact_match,strict-match (%) by saved net FLOPs",
        "b: exact_match,strict-match (%) by saved tokens",
        "b: acc,none (%) by saved net FLOPs",
    ]


def test_levels_are_sorted_and_a_missing_cell_stays_empty(make_row):
    text = render([make_row(level=0.1), make_row(level=0), make_row(method="mod", level=0)])
    header = _lines(text, "| method")[0]
    assert header.index(" 0 %") < header.index("10 %")
    assert _lines(text, "| mod")[0].split("|")[-2].strip() == ""


def test_semantics_are_shown_once_and_only_when_not_the_default(make_row):
    rows = [make_row(), make_row(semantics="paper"), make_row(method="mod@paper", semantics="paper")]
    labels = [_cells(line)[0] for line in _lines(render(rows), "| ")]
    assert labels[1:4] == ["gateskip", "gateskip@paper", "mod@paper"]


def test_metric_that_is_not_a_share_keeps_its_scale(make_row):
    text = render([make_row(metric="perplexity,none", score=23.71, low=None, high=None)])
    assert "23.71" in text
    assert "(%) by" not in text


def test_negative_saving_is_shown(make_row):
    text = render([make_row(saved_tokens=0.0, saved_core=0.0, saved_net=-0.172)])
    assert _cells(_lines(text, "| gateskip")[1])[2:5] == ["0.0", "0.0", "-17.2"]


def test_both_phases_the_claim_and_the_projection_stand_beside_the_saving(make_row):
    known = {"saved_prefill_net": 0.15, "saved_decode_net": 0.02, "claimed": 0.2, "claimed_minus_executed": 0.05}
    text = render([make_row(**known, projected_net=-0.03, projected_shape="llama-3.2-1b")])
    header = _lines(text, "| method")[1]
    assert _cells(header)[5:-1] == ["prefill net", "decode net", "claimed", "claimed - executed", "projected net"]
    assert _cells(_lines(text, "| gateskip")[1])[5:-1] == ["15.0", "2.0", "20.0", "5.0", "-3.0"]


def test_what_a_token_costs_stands_beside_the_share_where_it_is_known(make_row):
    text = render([make_row(flops_per_token=1.2345e9), make_row(level=0.2, flops_per_token=9.9e5)])
    assert _cells(_lines(text, "| method")[1])[-2:] == ["FLOPs/token", "kept"]
    assert [_cells(line)[-2] for line in _lines(text, "| gateskip")[1:]] == ["1.23 G", "990 k"]
    timed = render([make_row(axis="time", timing="batch 8, cpu", ms_per_token=0.5)])
    assert _cells(_lines(timed, "| gateskip")[1])[-2] == "0.500"
    assert "/token" not in render([make_row()])


def test_a_phase_is_named_and_explained_unless_it_is_both(make_row):
    text = render([make_row(), make_row(phase="decode"), make_row(phase="prefill", axis="tokens")])
    assert [line.partition(" by ")[2] for line in _lines(text, "## ")] == [
        "saved net FLOPs",
        "saved net FLOPs of decode",
        "saved tokens of prefill",
    ]
    assert "fed one by one" in text and "given answers" in text
    assert "fed one by one" not in render([make_row()])


def test_a_projected_axis_names_its_shape_and_says_what_it_is(make_row):
    text = render([make_row(axis="projected", projected_shape="llama-3.2-1b")])
    assert "by saved net FLOPs, projected (llama-3.2-1b)" in text
    assert "not a measurement" in text


def test_lower_is_better_is_said_where_it_is(make_row):
    text = render([make_row(metric="bits_per_byte,none", score=1.2, low=None, high=None)])
    assert "bits_per_byte,none ↓ by" in text and "↓ lower is better." in text
    assert "↓" not in render([make_row()])


def test_what_is_kept_is_a_share_of_the_dense_score_and_below_100_is_worse(make_row):
    for metric, dense, score, kept in (("acc,none", 0.8, 0.6, "75.0"), ("bits_per_byte,none", 0.8, 1.0, "80.0")):
        base = make_row(method="dense", metric=metric, score=dense, level=0.0)
        text = render([base, make_row(metric=metric, score=score)])
        assert _cells(_lines(text, "| gateskip")[1])[-1] == kept
        assert _cells(_lines(text, "| dense")[1])[-1] == "100.0"


def test_a_level_that_is_less_than_measured_is_marked(make_row):
    text = render([make_row(beyond_target=True, status="partial")])
    assert "89.8*‡ [84.0, 95.1]" in text
    assert "‡ beyond the saving this method was trained for." in text
    assert "≈ interpolated: measured more than 2 points" in render([make_row(gap=0.03, distance=0.025)])
    assert "≈" not in render([make_row(gap=0.04, distance=0.02)]) + render([make_row(gap=0.0, distance=0.0)])
    # Tables of earlier versions know the gap alone: one of its ends is at least half of it away.
    assert "≈" in render([make_row(gap=0.05)])
    assert "≈" not in render([make_row(gap=0.04)]) + render([make_row(gap=None)])
    text = render([make_row(below_target=True, target_axis="tokens")])
    assert "§ less than half of the saving" in text and "¶ trained for a saving on another axis." in text
    assert "¶" not in render([make_row(target_axis="net", axis="net")])
    for left_out, marked in ((0.3, True), (0.0, True), (0.1666, False), (None, False)):
        text = render([make_row(trained_without=1 / 6, saved_tokens=left_out)])
        assert ("◊ not trained for the number of layers" in text) == ("89.8◊" in text) == marked
    assert "◊" not in render([make_row(trained_without=None, saved_tokens=0.3)])
    assert "‡" not in render([make_row(beyond_target=False)]) + render([make_row(beyond_target=None)])


def test_what_the_training_took_stands_in_a_table_of_its_own(make_row):
    text = render([make_row(parameters_added=12345, train_flops=2.5e12), make_row(method="dense", parameters_added=0)])
    found = text.partition("Training:")[2]
    assert [_cells(line) for line in _lines(found, "| ")] == [
        ["method", "parameters added", "training FLOPs"],
        ["gateskip", "12,345", "2.5e+12"],
        ["dense", "0", ""],
    ]
    assert "Training:" not in render([make_row()])


def test_what_failed_is_named(make_row):
    text = render([make_row()], ["train mod, seed 1: Plugin fault: the router\nis on fire"])
    assert "* train mod, seed 1: Plugin fault: the router is on fire" in text
    assert "Incomplete" not in render([make_row()])
