"""Whole runs on a tiny model: what is written, what is never done twice, what happens when something goes wrong."""

import json
from dataclasses import fields, replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from adaptive_bench import registry
from adaptive_bench.config import load_config
from adaptive_bench.errors import EnvironmentProblem, Interrupted, UsageError
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.methods.dense import Dense
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import TaskAdvanced, TaskStarted
from adaptive_bench.runs import describe, plan, run, training_work
from adaptive_bench.runs import evaluation_work as evaluation
from adaptive_bench.tables.matching import meets
from adaptive_bench.tables.rows import Row
from adaptive_bench.task import TaskGroup

ROW_KEYS = [field.name for field in fields(Row)]


class Broken(Dense):
    """Fails when it is asked to decide."""

    broken = True

    def decide(self, view):
        if self.broken:
            raise RuntimeError("the router is on fire")
        return super().decide(view)

    @classmethod
    def training_spec(cls, config, spec):
        return spec


def without_floor(warnings):
    """A random model may well get nothing right."""
    return [text for text in warnings if "every score is 0" not in text]


def states(config):
    whole = plan(config)
    return [piece.record.state for piece in (*whole.trainings, *whole.sweeps)]


@pytest.fixture
def nothing_may_be_computed(monkeypatch):
    def forbid():
        def refuse(*_, **__):
            raise AssertionError("something was computed again")

        for name in ("build", "from_pretrained"):
            monkeypatch.setattr(AdaptiveModel, name, refuse)
        monkeypatch.setattr(training_work, "train", refuse)
        monkeypatch.setattr(evaluation, "evaluate", refuse)

    return forbid


def test_a_run_leaves_a_table_and_complete_records(config_of):
    config = config_of("dense,gateskip")
    outcome = run(config)
    table = json.loads((outcome.folder / "table.json").read_text())
    assert table == outcome.rows and all(list(row) == ROW_KEYS for row in table)
    assert {(row["method"], row["axis"], row["phase"], row["level"]) for row in table} == {
        (method, "tokens", "all", level) for method in ("dense", "gateskip") for level in (0.0, 0.3)
    }
    (under,) = {tuple(row[key] for key in ("model", "documents", "shots", "recipe")) for row in table}
    assert under[:3] == (config.model.rpartition("/")[2], 3, 0)
    assert under[3].startswith("steps 3, batch_size 2,")
    assert "target each level tokens, trained_on nano_qa_ll," in under[3]
    by_key = {(row["method"], row["level"]): row for row in table}
    assert by_key["gateskip", 0.3]["projected_shape"] == "llama-3.2-1b"
    assert by_key["dense", 0.0]["projected_net"] == by_key["dense", 0.0]["claimed"] == 0.0
    far = by_key["dense", 0.3]
    assert (far["status"], far["saved"], far["score"]) == ("nearest", 0.0, by_key["dense", 0.0]["score"])
    spread = by_key["gateskip", 0.3]
    assert spread["status"] == ("ok" if meets(spread["saved"], 0.3) else "nearest")
    assert spread["saved"] == spread["saved_tokens"] > 0
    assert (spread["interval"], spread["documents"]) == ("documents", 3) and 0 <= spread["low"] < spread["high"] <= 1
    assert outcome.exit_code == 0 and set(states(config)) == {"done"}
    assert "gateskip" in (outcome.folder / "leaderboard.md").read_text()
    assert json.loads((outcome.folder / "run.json").read_text())["state"] == "done"
    for training in plan(config).trainings:
        assert {"record.json", "train.jsonl", "checkpoint"} <= {path.name for path in training.folder.iterdir()}
        assert all(map(training.record.read, ("config", "status", "env", "data", "timing", "cost")))
    for sweep in plan(config).sweeps:
        assert len(sweep.record.samples(0.0)) == sweep.record.point(0.0).docs == 3


def test_the_second_run_computes_nothing_whatever_it_is_matched_on(config_of, nothing_may_be_computed):
    first = run(config_of("dense,random_skip"))
    nothing_may_be_computed()
    assert run(config_of("dense,random_skip")).rows == first.rows
    assert {row["level"] for row in run(config_of("random_skip", match_on="core")).rows} == {0.0, 0.3}
    assert without_floor(run(config_of("random_skip", match_on="claimed")).warnings) == []
    outcome = run(config_of("random_skip", match_on="net", match_phase="prefill"))
    found = {(row["axis"], row["phase"], row["level"]) for row in outcome.rows}
    assert found == {("net", "prefill", level) for level in (0.0, 0.3)}
    assert "saved in prefill" in (outcome.folder / "leaderboard.md").read_text()


def test_a_task_that_writes_nothing_has_no_table_by_decode(config_of):
    tasks = ("nano_qa_ll", "nano_math")
    outcome = run(config_of("random_skip", tasks=tasks, train_on=tasks[:1], match_phase="decode"))
    said = "nano_qa_ll: the saving on the axis tokens in decode is not known"
    assert outcome.exit_code == 0 and any(text.startswith(said) for text in outcome.warnings)
    assert {row["phase"] for row in outcome.rows} == {"decode"}
    assert {row["task"] for row in outcome.rows if row["score"] is not None} == {"nano_math"}


@pytest.mark.parametrize(
    ("changes", "meant"),
    [({"project_onto": "llama-3.2-1"}, r"llama-3\.2-1b"), ({"train": {"method_learning_rates": {"mox": 0.1}}}, "mod")],
)
def test_a_name_that_is_none_is_refused_before_anything_is_done(config_of, changes, meant):
    with pytest.raises(UsageError, match=meant):
        run(config_of("dense", **changes))


def test_another_level_of_an_untrained_method_adds_points_only(config_of, monkeypatch):
    run(config_of("random_skip"))
    monkeypatch.setattr(training_work, "train", None)
    outcome = run(config_of("random_skip", levels=(0.0, 0.5)))
    assert outcome.exit_code == 0
    (sweep,) = plan(config_of("random_skip")).sweeps
    assert sweep.record.savings() == [0.0, 0.3, 0.5]


def test_levels_are_measured_where_they_are_judged(config_of, nothing_may_be_computed):
    """Within a point of saving, on the axis that is matched on; from the records alone the same walk is found."""
    config = config_of(
        ("random_skip", "gateskip[shape=scalar]"),
        levels=(0.15, 0.3),
        match_on="layers",
        evaluation={"closeness": 0.01, "limit": 40, "calibration_examples": 64},
    )
    outcome = run(config, jobs=1)
    assert outcome.exit_code == 0
    for sweep in plan(config).sweeps:
        saved = [point.saved("layers") for point in sweep.finished().values()]
        assert all(min(abs(one - level) for one in saved) <= 0.01 for level in sweep.levels), (str(sweep), saved)
        assert len(saved) <= 4 * len(sweep.levels)
        assert len(sweep.record.read("probes")["saved"]) <= 6 * len(sweep.levels)
    nothing_may_be_computed()
    assert run(config, jobs=1).rows == outcome.rows


def test_one_broken_method_does_not_cost_the_others_and_is_tried_again(config_of, registered, lines, monkeypatch):
    registered("broken", Broken)
    config = config_of("broken,dense")
    outcome = run(config, lines)
    assert outcome.exit_code == 1 and {row["method"] for row in outcome.rows} == {"dense"}
    assert "the router is on fire" in str(outcome.failures[0]) and any("on fire" in line for line in lines.lines)
    record = plan(config).trainings[0].record
    assert record.state == "failed" and "on fire" in record.reason
    assert "Traceback" in (record.folder / "log.txt").read_text()
    assert "failed before" in describe(plan(config))[0]["state"]
    assert json.loads((outcome.folder / "run.json").read_text())["state"] == "partial"
    monkeypatch.setattr(Broken, "broken", False)
    outcome = run(config)
    assert outcome.exit_code == 0 and outcome.rows and set(states(config)) == {"done"}


def test_rows_without_all_their_seeds_are_marked(config_of, monkeypatch):
    train = training_work.train

    def fails_for_seed_2(*positional, seed, **named):
        if seed == 2:
            raise EnvironmentProblem("no seed 2 today")
        train(*positional, seed=seed, **named)

    monkeypatch.setattr(training_work, "train", fails_for_seed_2)
    outcome = run(config_of("dense", seeds=(1, 2)))
    assert {row["status"] for row in outcome.rows} == {"partial"}
    assert {row["seeds"] for row in outcome.rows if row["level"] == 0} == {1}
    monkeypatch.undo()


def test_ctrl_c_keeps_what_is_finished(config_of, monkeypatch):
    evaluate, calls = evaluation.evaluate, []

    def interrupted(*positional, **named):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(*positional, **named)

    monkeypatch.setattr(evaluation, "evaluate", interrupted)
    config = config_of("random_skip")
    with pytest.raises(Interrupted, match=r"adaptive-bench run --config .*config\.yaml") as stopped:
        run(config)
    assert states(config) == ["done", "partial"]
    path = str(stopped.value).split("--config ")[1]
    assert load_config(path) == config
    monkeypatch.setattr(training_work, "train", None)
    outcome = run(config)
    assert outcome.exit_code == 0 and len(calls) == 3


def test_a_plan_writes_nothing_and_estimates_from_what_this_machine_did_before(config_of):
    config = config_of("dense,gateskip", eligible="all")  # sites are measured before a plan
    described = describe(plan(config))
    assert [line["state"] for line in described[:2]] == ["3 steps left", "3 steps left"]
    assert "rough" in described[-1]["time"] and not config.out.exists()
    run(config_of("dense"))
    described = describe(plan(config))
    assert described[0]["state"] == "on disk" and described[0]["time"] == ""
    alike = plan(config_of("dense,random_skip,gateskip,gateskip[kv=copy_below],gateskip[rule=exact_share]@paper"))
    assert [str(training.spec) for training in alike.trainings] == ["dense", "gateskip"], "one that they share"
    assert len({sweep.folder for sweep in alike.sweeps}) == 5


def test_calibration_halves_its_batch_aloud(config_of, monkeypatch, lines):
    calibrate = AdaptiveModel.calibrate

    def cramped(self, batches, savings):
        if max(len(batch["input_ids"]) for batch in batches) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return calibrate(self, batches, savings)

    monkeypatch.setattr(AdaptiveModel, "calibrate", cramped)
    outcome = run(config_of("gateskip"), lines)
    assert outcome.exit_code == 0
    assert [line for line in lines.lines if "2 sequence(s)" in line and "calibrate gateskip" in line]


@pytest.mark.slow
def test_a_training_that_starts_from_another_one_waits_for_it(config_of, lines):
    outcome = run(config_of("router_tuned_mod,gateskip[frozen=true]"), lines, jobs=2)
    assert outcome.exit_code == 0
    begun = [task for task in lines.tasks if ": train " in task]
    assert begun[0] == "seed 1: train dense" and len(begun) == 3
    assert not any("is running it" in line for line in lines.lines)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_starts_from_a_failed_training_is_left_out(config_of, monkeypatch, jobs):
    config = config_of("router_tuned_mod,gateskip")
    for training in plan(config).trainings:
        if str(training.spec) == "dense":  # a file where the training wants its folder
            training.folder.parent.mkdir(parents=True)
            training.folder.write_text("")
    outcome = run(config, jobs=jobs)
    assert {row["method"] for row in outcome.rows} == {"gateskip"}
    assert [failure.work for failure in outcome.failures] == ["train dense, seed 1", "train router_tuned_mod, seed 1"]
    assert "which failed" in outcome.failures[1].reason


def test_no_steps_evaluate_the_model_as_it_is(config_of, model_folder, lines):
    """A method's own parameters keep their initial values, and that is said; a text to calibrate on is still needed."""
    config = config_of(("dense", "random_skip", "gateskip"), train={"steps": 0})
    assert {entry["state"] for entry in describe(plan(config))[:2]} == {"nothing to train"}
    outcome = run(config, lines)
    assert outcome.exit_code == 0
    assert any("Nothing was trained" in warning for warning in outcome.warnings)
    (training, *_) = plan(config).trainings
    trained = AdaptiveModel.from_pretrained(training.checkpoint).backbone_model.state_dict()
    original = AutoModelForCausalLM.from_pretrained(model_folder).state_dict()
    assert all(torch.equal(value, original[name]) for name, value in trained.items())
    assert describe(plan(config))[0]["state"] == "nothing to train"
    run(config, lines)  # everything is on disk


def test_no_steps_need_no_training_text(config_of, monkeypatch):
    without = replace(find_task("nano_qa_ll"), training=None)
    monkeypatch.setattr("adaptive_bench.runs.training_text.find_task", lambda name: without)
    assert run(config_of(("dense", "random_skip"), train={"steps": 0})).exit_code == 0
    outcome = run(config_of("gateskip", train={"steps": 0}))
    assert outcome.exit_code == 1
    assert "needs held-out training text, but nano_qa_ll has none" in str(outcome.failures[0])


def test_worked_examples_do_not_depend_on_the_seed_of_the_training(config_of):
    config = config_of("random_skip", seeds=(1, 2), levels=(0.0,), train={"steps": 0}, evaluation={"num_fewshot": 2})
    run(config)
    first, second = (next(iter(sweep.finished().values())) for sweep in plan(config).sweeps)
    assert first.fewshot_seed == second.fewshot_seed == 1234
    assert first.prompt_tokens == second.prompt_tokens and first.scores == second.scores


def test_a_group_of_tasks_is_run_as_its_tasks(config_of, monkeypatch):
    group = TaskGroup("pair", "two names for one task", ("nano_qa_ll", "nano_qa_ll"))
    monkeypatch.setitem(registry._registered, ("tasks", "pair"), (group, "this test"))
    outcome = run(config_of("dense", tasks=("pair",)))
    assert {row["task"] for row in outcome.rows} == {"nano_qa_ll"} and outcome.exit_code == 0
    assert run(config_of("dense")).folder == outcome.folder, "the table of the group is that of its tasks"


def test_a_run_on_a_corpus(config_of, tmp_path):
    folder = tmp_path / "data" / "letters"
    folder.mkdir(parents=True)
    for split, count in (("train", 60), ("validation", 3)):
        rows = ({"text": f"{split} document number {n} " * 3} for n in range(count))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = {"max_length": 64}
    config = config_of("dense,gateskip", tasks=("perplexity:letters",), data_dir=tmp_path / "data", train=train)
    outcome = run(config)
    assert not outcome.failures
    assert {row["metric"] for row in outcome.rows} >= {"bits_per_byte,none"}
    lengths = plan(config).trainings[0].record.read("data")["completion_tokens"]
    assert lengths["median"] == lengths["max"] == 64, "packed to full length"
    points = [sweep.record.point(0.0) for sweep in plan(config).sweeps]
    assert len(points) == 2 and len({point.data["documents_sha256"] for point in points}) == 1


# What fails takes nothing else with it, and nothing that was not done goes unsaid.


TASKS = ("nano_qa_ll", "nano_text", "nano_math", "nano_qa")


def test_a_task_that_fails_does_not_stop_the_others(config_of, monkeypatch, lines):
    """Two of four fail: both are named, with the log of each; the rest is in the table, and the bar ends."""
    evaluate, tell, events = evaluation.evaluate, lines.emit, []

    def refuse(model, tokenizer, task, **settings):
        if task in TASKS[1:3]:
            raise SystemError("boom")
        return evaluate(model, tokenizer, task, **settings)

    monkeypatch.setattr(evaluation, "evaluate", refuse)
    monkeypatch.setattr(lines, "emit", lambda event: (tell(event), events.append(event)))
    config = config_of("dense", tasks=TASKS)
    outcome = run(config, lines, jobs=1)
    works = [f"evaluate dense on {name}, seed 1" for name in TASKS[1:3]]
    assert [failure.work for failure in outcome.failures] == works
    assert all(failure.log is not None and str(failure.log) in str(failure) for failure in outcome.failures)
    assert len({failure.log for failure in outcome.failures}) == 2
    assert outcome.exit_code == 1
    assert {row["task"] for row in outcome.rows if row["score"] is not None} == {TASKS[0], TASKS[3]}
    told = [line for line in lines.lines if line.startswith("Failed: ")]
    assert told == [f"Failed: {failure}" for failure in outcome.failures]
    assert json.loads((outcome.folder / "run.json").read_text())["failures"] == list(map(str, outcome.failures))
    bar = {event.task: event.total for event in events if isinstance(event, TaskStarted) and event.label == "run"}
    done = [event.units for event in events if isinstance(event, TaskAdvanced) and event.task in bar]
    assert bar and sum(done) == pytest.approx(sum(bar.values()))
    again = run(config, jobs=1, table_only=True)
    assert {failure.work for failure in again.failures} == {failure.work for failure in outcome.failures}
