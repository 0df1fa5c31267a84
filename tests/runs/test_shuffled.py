"""The control of shuffled decisions in a run: records of its own beside each method's, and what rows say of both."""

import json
import shutil

import pytest
from finished_run import without_point
from share_dial import ShareDial

from adaptive_bench.leaderboard.boards import Source
from adaptive_bench.leaderboard.page.method_pages import samples_of
from adaptive_bench.method import Decision
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.run_table import outcome_of
from adaptive_bench.runs.trained import run_name, work_of
from adaptive_bench.store import manifest
from adaptive_bench.store.keys import USUAL, key_of
from adaptive_bench.store.manifest import pieces

WORTH = ("shuffled_score", "decisions_worth", "decisions_low", "decisions_high", "shuffled_apart")


@pytest.fixture
def counted(monkeypatch):
    """Names of the evaluations that are really done, each once for every dial value."""
    done, ask = [], evaluation._evaluate_at
    monkeypatch.setattr(evaluation, "_evaluate_at", lambda sweep, *rest: done.append(str(sweep)) or ask(sweep, *rest))
    return done


def test_every_method_that_chooses_has_one_and_no_key_moves(config_of):
    """Methods that treat all tokens alike need none, and those that choose for a whole text or batch can have none."""
    specs = ("dense", "static_depth", "random_skip", "gated", "gateskip", "calm", "gateskip@paper", "mod@paper")
    specs += ("position_skip[trained=true]",)
    off, on = config_of(specs), config_of(specs, shuffled=True)
    plain, both = plan(off), plan(on)
    assert [sweep.folder for sweep in both.sweeps if not sweep.variant] == [sweep.folder for sweep in plain.sweeps]
    controls = [sweep for sweep in both.sweeps if sweep.variant]
    assert [str(sweep.spec) for sweep in controls] == ["gateskip", "calm", "position_skip[trained=true]"]
    assert [training.folder for training in both.trainings] == [training.folder for training in plain.trainings]
    assert str(controls[0]) == "evaluate gateskip, shuffled, on nano_qa_ll, seed 1"
    assert all(sweep.split == "test" for sweep in controls)
    before = {key: value for key, value in off.model_dump(mode="json").items() if key not in ("shuffled", "eligible")}
    about_doing = ("out", "device", "track", "preset", "for_models", "cell_timeout", "stall_warning")
    before = {key: value for key, value in before.items() if key not in about_doing}
    for key in USUAL:  # names are older than these
        del before["evaluation"][key]
    del before["train"]["parallel"]
    assert run_name(off).endswith(key_of(before)[:8]) and run_name(on) != run_name(off)


def test_each_training_has_one_and_validation_documents_have_none(config_of):
    config = config_of("gateskip", tasks=("nano_math",), shuffled=True, levels=(0.05, 0.1))
    asked = [(sweep.training.target, sweep.levels, sweep.variant) for sweep in plan(config).sweeps]
    assert asked == [(level, (level,), variant) for level in (0.05, 0.1) for variant in ("", "shuffled")]
    assert not any(sweep.variant for sweep in plan(config, splits=("validation",)).sweeps)


def test_rows_say_what_decisions_are_worth_wherever_they_are_made_from(config_of, counted, tmp_path):
    config = config_of(("dense", "gateskip", "gateskip@paper"), shuffled=True, seeds=(1, 2))
    outcome = run(config, jobs=1)
    assert outcome.exit_code == 0
    assert sum("shuffled" in text for text in counted) == 4  # two seeds, two dial values
    assert [text for text in outcome.warnings if "no control of shuffled decisions" in text] == [
        "gateskip@paper has no control of shuffled decisions: a token can have another token's decisions where each is "
        "decided for itself, but the decisions of gateskip@paper depend on the other sequences of a batch."
    ]
    scored = [row for row in outcome.rows if row["score"] is not None]
    for row in scored:
        has_control = (row["method"], row["semantics"]) == ("gateskip", "bench")
        assert all((row[name] is not None) == has_control for name in WORTH)
        if has_control:
            assert row["decisions_worth"] == pytest.approx(row["score"] - row["shuffled_score"])
            assert row["decisions_low"] <= row["decisions_worth"] <= row["decisions_high"]
        if has_control and row["level"] == 0:
            assert row["decisions_worth"] == row["shuffled_apart"] == 0  # where nothing skips they are one model

    counted.clear()
    assert run(config, jobs=1).rows == outcome.rows and not counted
    whole = plan(config)
    control = next(sweep for sweep in whole.sweeps if sweep.variant)
    before = control.record.samples(0.3), control.record.point(0.3).savings
    without_point(control.record, 0.3)
    again = run(config, jobs=1)
    assert counted == [str(control)]
    assert before == (control.record.samples(0.3), control.record.point(0.3).savings)
    assert [{**row, "seconds": None} for row in again.rows] == [{**row, "seconds": None} for row in outcome.rows]

    written = json.loads((outcome.folder / manifest.FILE).read_text())["evaluations"]
    assert [one.get("variant", "") for one in written].count("shuffled") == 2
    answers = json.loads((outcome.folder / "answers.json").read_text())["sweeps"]
    assert len(answers) == 6  # the control's are no answers of the method
    plain = json.loads(json.dumps([row.to_json() for row in outcome_of(work_of(outcome.folder)).rows]))
    assert plain == again.rows


def test_the_control_is_measured_wherever_its_method_is(config_of, counted):
    """At one dial value both save the same, so that nothing but the choice of tokens is between them."""
    config = config_of("gateskip", shuffled=True, levels=(0.0, 0.12), evaluation={"closeness": 0.01})
    assert run(config, jobs=1).exit_code == 0
    own, control = plan(config).sweeps
    assert own.record.savings() == control.record.savings() and control.record.read("probes") is None

    counted.clear()
    extra = max(own.record.savings())
    without_point(own.record, extra)
    assert [sweep.is_complete for sweep in plan(config).sweeps] == [False, False]  # a control follows its method
    assert run(config, jobs=1).exit_code == 0 and counted == [str(own)]
    without_point(control.record, extra)
    assert [sweep.is_complete for sweep in plan(config).sweeps] == [True, False]


def test_answers_of_the_control_can_be_read(config_of, monkeypatch):
    config = config_of(("gateskip", "calm"), shuffled=True)
    outcome = run(config, jobs=1)
    found = work_of(outcome.folder).sweeps
    assert [str(sweep.own.spec) for sweep in found if sweep.variant] == ["gateskip", "calm"]
    assert all(sweep.own.task == sweep.task and not sweep.own.variant for sweep in found if sweep.variant)
    assert all(sweep.own is None for sweep in found if not sweep.variant)
    assert {row["eligible"] for row in outcome.rows if row["method"] == "gateskip"} == {"layers 0, 1"}  # all there are
    works = [piece.work for piece in pieces(outcome.folder.parents[1])]
    assert [works.count(work) for work in ("train", "nano_qa_ll", "nano_qa_ll (shuffled)")] == [2, 2, 2]
    assert list(samples_of([Source(outcome.folder)])["nano_qa_ll"]) == ["gateskip", "calm"]

    monkeypatch.setattr("adaptive_bench.tables.outcome.CONTROL_TOLERANCE", -1.0)
    said = [text for text in run(config, jobs=1).warnings if "decisions of other tokens differ" in text]
    assert any(text.startswith("gateskip on nano_qa_ll: at ") for text in said)  # savings that fall apart
    for sweep in found:
        if not sweep.variant:
            shutil.rmtree(sweep.folder)
    assert samples_of([Source(outcome.folder)]) == {}  # what the control wrote is not shown as the method's


def test_without_training_text_there_is_nothing_to_draw_from(config_of, registered, monkeypatch):
    class EveryThird(ShareDial):
        def decide(self, view):
            return Decision(keep=view.call.positions % 10 >= 10 * self.value)

    registered("every_third", EveryThird)
    monkeypatch.setattr("adaptive_bench.runs.evaluation_work.Calibrated.has_text", False)
    (failure,) = run(config_of("every_third", shuffled=True), jobs=1).failures
    assert "Shuffled decisions are drawn from those of held-out training text" in failure.reason
