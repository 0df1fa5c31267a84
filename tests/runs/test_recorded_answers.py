"""What models wrote is scored again by the tasks that are here: records whose documents say otherwise are refused."""

import hashlib
import json
import math

import pytest
from forged_entries import members_of, sealed_again
from small_runs import run_config

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.rescoring import Rescorer
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run
from adaptive_bench.runs.rederive import derive
from adaptive_bench.store.archive import archived
from adaptive_bench.store.evaluations import Sample

TASKS = ("nano_math", "nano_qa_ll", "nano_text")


@pytest.fixture(scope="module")
def measured(model_folder, tmp_path_factory):
    """A run of a written, a chosen and a read task, with its packed records."""
    home = tmp_path_factory.mktemp("run")
    config = run_config(model_folder, home / "out", ("dense", "random_skip"), tasks=TASKS, seeds=(1,))
    about = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}
    return config, submit(run(config).folder, home / "entries", with_records=True, about=about)


def forged(entry, folder, task, change, *, about=None, kept=None):
    """Records whose documents of a task were changed, with every digest and mean made anew.

    Args:
        change: Takes the values of a document, and changes them.
        about: The same for those of a point.
        kept: How many documents are left of each point but the first.
    """
    folder.mkdir()
    members = dict(members_of(entry))
    for name in [one for one in members if f"/{task}-" in one and one.endswith(".samples.jsonl")]:
        lines = [json.loads(line) for line in members[name].decode().splitlines()]
        lines = lines if name.endswith("/0.samples.jsonl") else lines[:kept]
        for line in lines:
            change(line)
        members[name] = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        place = name.replace(".samples.jsonl", ".json")
        point = json.loads(members[place])
        point["samples_sha256"] = hashlib.sha256(members[name]).hexdigest()
        for metric in point["scores"]:
            if values := [line["scores"][metric] for line in lines if metric in line["scores"]]:
                point["scores"][metric] = sum(values) / len(values)
        if about is not None:
            about(point)
        members[place] = sealed_again(json.dumps(point, indent=2).encode() + b"\n")
    (folder / "records.tar.xz").write_bytes(archived(list(members.items())))
    return folder / "records.tar.xz"


def right(metric):
    def change(line):
        line["scores"][metric] = line["correct"] = 1.0

    return change


def written(line):
    """The right answer in place of what was written, and not its score."""
    line["output"] = " " + line["target"]


def easier(line):
    """A right answer that is what was written."""
    line["target"] = f"#### {line['answers']['flexible-extract']}"


FORGED = {
    "a written answer is right": (
        "nano_math", right("exact_match,strict-match"),
        r"of document \d, output .*, exact_match,strict-match is 1\.0, the task nano_math gives 0\.0"),
    "a choice is right": ("nano_qa_ll", right("acc,none"), r"acc,none is 1\.0, the task nano_qa_ll gives 0\.0"),
    "other words": ("nano_math", written, "the answer by strict-match is"),
    "another right answer": ("nano_math", easier, "the target is '#### "),
    "a longer text": (
        "nano_text", lambda line: line.update(target=2 * line["target"], output=2 * line["output"]), "the target is "),
    "no text": (
        "nano_math", lambda line: line.update(output=0.5),
        "of the output of document 0: it is of the type str, got float"),
    "no choice": ("nano_qa_ll", lambda line: line.update(output="A"), "it is of the type int, got str"),
    "a choice beyond them": ("nano_qa_ll", lambda line: line.update(output=99), "it is one of 4 choices, got 99"),
    "a document of truth": ("nano_math", lambda line: line.update(doc=bool(line["doc"])), "its documents are the"),
    "no document": ("nano_qa_ll", lambda line: line.update(doc=-1), "its documents are the first 3 of nano_qa_ll, in"),
    "an answer read out of it": (
        "nano_math", lambda line: line["answers"].update({"strict-match": "7"}), "the answer by strict-match is '7'"),
    "a mark of the page": (
        "nano_qa_ll", lambda line: line.update(correct=0.5), r"of document 0, output \d, correct is 0\.5"),
    "another document": (
        "nano_math", lambda line: line.update(doc=line["doc"] + 1000), "its documents are the first 3 of nano_math"),
}  # fmt: skip
SAID = {
    "worked examples": (lambda point: point.update(num_fewshot=5), "num_fewshot is 5, the task nano_math gives 0"),
}


@pytest.mark.parametrize(("task", "change", "why"), FORGED.values(), ids=FORGED)
def test_documents_that_say_otherwise_than_the_task_are_refused(measured, tmp_path, task, change, why):
    config, entry = measured
    with pytest.raises(EnvironmentProblem, match=why):
        derive(config, forged(entry, tmp_path / "other", task, change))


@pytest.mark.parametrize(("change", "why"), SAID.values(), ids=SAID)
def test_a_point_that_was_asked_something_else_is_refused(measured, tmp_path, change, why):
    config, entry = measured
    packed = forged(entry, tmp_path / "other", "nano_math", lambda line: None, about=change)
    with pytest.raises(EnvironmentProblem, match=why):
        derive(config, packed)


def test_what_was_not_changed_holds(measured, tmp_path):
    config, entry = measured
    found = derive(config, forged(entry, tmp_path / "same", "nano_math", lambda line: None))
    assert found.rows and not found.unscored


def test_a_point_has_all_documents_that_were_asked(measured, tmp_path):
    config, entry = measured
    of_two = {"kept": 2, "about": lambda point: point.update(docs=min(point["docs"], 2) if point["asked"] else 3)}
    with pytest.raises(EnvironmentProblem, match="its documents are the first 3 of nano_math, in their order"):
        derive(config, forged(entry, tmp_path / "other", "nano_math", lambda line: None, **of_two))


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [("task_inputs", lambda *_: {"task_code": "newer"}, "another version"), ("version", lambda _: "9.9", "9.9 here")],
)
def test_where_another_version_disagrees_nothing_is_shown_and_that_is_said(
    measured, tmp_path, monkeypatch, place, value, why
):
    config, entry = measured
    monkeypatch.setattr(f"adaptive_bench.runs.recorded_answers.{place}", value)
    assert not derive(config, forged(entry, tmp_path / "same", "nano_math", lambda line: None)).unscored
    found = derive(config, forged(entry, tmp_path / "other", "nano_math", right("exact_match,strict-match")))
    assert found.unscored.keys() == {"nano_math"} and why in found.unscored["nano_math"]


def test_a_text_too_long_for_a_filter_is_left_and_that_is_said(measured, tmp_path):
    config, entry = measured
    found = derive(config, forged(entry, tmp_path / "long", "nano_math", lambda line: line.update(output="7" * 20_001)))
    assert found.unscored == {"nano_math": "an output of 20001 characters is too long for that"}


@pytest.mark.parametrize(
    ("task", "output", "why"), [("nano_text", 5.0, "at most 0, got 5.0"), ("nano_text", math.nan, "at most 0, got nan")]
)
def test_what_no_output_can_be(task, output, why):
    rescorer = Rescorer(task, data_dir=None, num_fewshot=None, split="test")
    assert why in rescorer.problem(Sample(0, "text", output, {}, {}, None))


@pytest.mark.parametrize("task", TASKS)
def test_outputs_are_scored_as_the_evaluation_scored_them(measured, task):
    entry = measured[1]
    rescorer = Rescorer(task, data_dir=None, num_fewshot=None, split="test")
    names = [name for name, _ in members_of(entry) if f"/{task}-" in name and name.endswith("0.samples.jsonl")]
    for name in names:
        for line in dict(members_of(entry))[name].decode().splitlines():
            sample = Sample.from_json(json.loads(line))
            again = rescorer.of(sample)
            assert again.answers == sample.answers and again.target == sample.target
            assert again.scores == {key: value for key, value in sample.scores.items() if key in again.scores}
            assert bool(again.scores) == (task != "nano_text")
