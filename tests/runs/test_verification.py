"""What a run says of single documents is enough to make its table again, and to find out whether it holds."""

import json

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.leaderboard.answers import read_answers
from adaptive_bench.leaderboard.row import Row
from adaptive_bench.runs import run
from adaptive_bench.runs.outcome.verification import _may_be_a_seed, verify


def answers_in(folder):
    return json.loads((folder / "answers.json").read_text())["sweeps"]


def changed(answers, change):
    """The answers with every point changed."""
    return [entry | {"points": [point | change(point) for point in entry["points"]]} for entry in answers]


def turned(point):
    letters = str.maketrans("01", "10")
    return {"scores": {key: text.translate(letters) for key, text in point["scores"].items()}}


def test_answers_give_every_score_of_the_table_again(config_of):
    folder = run(config_of("random_skip", seeds=2)).folder
    answers = read_answers(folder)
    compared = 0
    for row in json.loads((folder / "table.json").read_text()):
        scores = answers.at_levels(Row.of(row), [row["level"]])[0]
        if scores is None:
            assert row["score"] is None
        else:
            compared += 1
            assert scores.values.mean() == pytest.approx(row["score"], abs=1e-9)
            assert scores.values.shape[0] == row["seeds"]
    assert compared > 5


def test_bits_per_byte_can_be_verified_and_tested_in_pairs(config_of):
    config = config_of(("dense", "random_skip"), tasks=("nano_text",), train_on=("nano_qa",), seeds=2)
    folder = run(config).folder
    rows = [row for row in json.loads((folder / "table.json").read_text()) if row["low"] is not None]
    assert rows and {(row["interval"], row["seeds"]) for row in rows} == {("seeds and documents", 2)}
    assert all(0 <= row["low"] <= row["score"] <= row["high"] for row in rows)
    answers = answers_in(folder)
    for one in verify(config, answers, documents=2):
        assert (one.verdict, one.documents) == ("holds", 3)  # all: what a document adds depends on the others
    worse = changed(
        answers, lambda point: {"scores": {key: [1.1 * one for one in some] for key, some in point["scores"].items()}}
    )
    assert {one.verdict for one in verify(config, worse)} == {"differs"}


def test_what_differs_by_document_may_score_as_another_seed_does(config_of):
    config = config_of("random_skip", seeds=3)
    answers = answers_in(run(config).folder)
    (found,) = verify(config, [*changed(answers[:1], turned), *answers[1:]], saving=0.3)
    (alone,) = verify(config, changed(answers[:1], turned), saving=0.3)
    assert (found.equal, found.verdict, alone.verdict) == (0, "alike", "differs")
    saves_more = changed(answers, lambda point: {"saved": point["saved"] | {"tokens": point["saved"]["tokens"] + 0.3}})
    assert [one.verdict for one in verify(config, saves_more, saving=0.3)] == ["differs"]  # whatever its scores are
    mean = 0.4
    assert _may_be_a_seed(mean, [mean] * 3, 0.0) and not _may_be_a_seed(mean + 0.1, [mean] * 3, 0.0)
    assert _may_be_a_seed(mean + 0.1, [mean] * 3, 0.125) and not _may_be_a_seed(mean, [mean] * 2, 1.0)
    # Student's t with 2 degrees of freedom is 9.92 at 99 %: 0.5 +- 9.92 * 0.1 * sqrt(4 / 3).
    assert _may_be_a_seed(0.5 + 1.14, [0.4, 0.5, 0.6], 0.0) and not _may_be_a_seed(0.5 + 1.15, [0.4, 0.5, 0.6], 0.0)


def test_a_true_entry_holds_and_a_false_one_differs(config_of, tmp_path):
    config = config_of(("dense", "random_skip"))
    answers = answers_in(run(config).folder)
    found = verify(config, answers, saving=0.3)
    assert [(one.method, one.verdict) for one in found] == [("dense", "holds"), ("random_skip", "holds")]
    assert all(one.found_saving == pytest.approx(one.claimed_saving) for one in found)
    assert {one.verdict for one in verify(config, changed(answers, turned))} == {"differs"}
    saves_more = changed(answers, lambda point: {"saved": point["saved"] | {"tokens": point["saved"]["tokens"] + 0.1}})
    assert {one.verdict for one in verify(config, saves_more)} == {"differs"}
    with pytest.raises(UsageError, match="two runs"):
        verify(config.model_copy(update={"methods": ("dense",)}), answers)
    elsewhere = config.model_copy(update={"out": tmp_path / "elsewhere"})
    (only,) = verify(elsewhere, answers[1:], documents=2)
    assert (only.documents, only.verdict, only.claimed_saving, only.trained) == (2, "holds", None, True)
    assert not any(one.trained for one in found)
    assert any((tmp_path / "elsewhere" / "records").iterdir())  # the training was made
