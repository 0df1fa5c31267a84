import pytest

from adaptive_bench.leaderboard.markdown import render


def _lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_score_is_printed_with_its_interval_and_its_savings(make_row):
    score, saving = _lines(render([make_row()]), "| gateskip")
    assert "89.8 [84.0, 95.1]" in score
    assert "15.0 / 12.5 / 10.0" in saving


def test_level_outside_the_measured_range_is_not_a_number(make_row):
    gone = make_row(level=0.25, score=None, low=None, high=None, status="outside", saved_tokens=None)
    score, saving = _lines(render([make_row(), gone]), "| gateskip")
    assert score.count("n/a") == saving.count("n/a") == 1


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
    labels = [line.split("|")[1].strip() for line in _lines(render(rows), "| ")]
    assert labels[1:4] == ["gateskip", "gateskip@paper", "mod@paper"]


def test_metric_that_is_not_a_share_keeps_its_scale(make_row):
    text = render([make_row(metric="perplexity,none", score=23.71, low=None, high=None)])
    assert "23.71" in text
    assert "(%) by" not in text


def test_negative_saving_is_shown(make_row):
    assert "0.0 / 0.0 / -17.2" in render([make_row(saved_tokens=0.0, saved_core=0.0, saved_net=-0.172)])
