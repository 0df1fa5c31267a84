import json

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.runs import run
from adaptive_bench.store import manifest


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished smoke run on nano."""
    changes = {"tasks": "nano_math,nano_qa_ll", "methods": "random_skip,dense", "train": {"steps": 0}}
    changes |= {"out": tmp_path_factory.mktemp("out"), "device": "cpu", "match_on": "tokens"}
    return run(load_config("smoke", changes)).folder


@pytest.fixture
def samples(command, finished):
    """`samples("--docs 2")`: of one task unless another is named."""

    def given(arguments="", task="nano_math", folder=finished):
        named = ["--task", task] if task else []
        return command("samples", str(folder), *named, *arguments.split())

    return given


def test_prompt_target_and_every_method(samples):
    result = samples("--level 0.2 --docs 2")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("document")] == ["0", "1"]
    for begins in ("prompt", "target", "dense, saves 0.0 % of tokens", "random_skip, saves"):
        assert sum(line.startswith(begins) for line in lines) == 2


def test_the_point_is_found_on_the_axis_of_the_runs_table(samples, finished, monkeypatch):
    """Net FLOPs: the dense part of a model is not saved, so the same share of them takes more tokens."""
    how = "--level 0.2 --methods random_skip --docs 1"
    by_tokens = json.loads(samples(f"{how} --json").stdout)[0]["answers"][0]
    monkeypatch.setattr("adaptive_bench.cli.runs.read_run", lambda file: {"match_on": "net"})
    told = samples(how).stdout
    assert "% of net FLOPs" in told and "% of tokens" not in told
    by_net = json.loads(samples(f"{how} --json").stdout)[0]["answers"][0]
    known = manifest.read(finished)
    (one,) = (one for one in known.evaluations if (one.method, one.task) == ("random_skip", "nano_math"))
    measured = [point.savings["net"] for point in known.record_of(one).points().values()]
    assert abs(by_net["saved"] - 0.2) == pytest.approx(min(abs(net - 0.2) for net in measured))
    assert by_net["asked"] >= by_tokens["asked"]


def test_choices_are_shown_as_text_and_documents_that_differ_or_from_a_first_one_on(samples):
    documents = json.loads(samples("--methods dense --json --docs 4", task="nano_qa_ll").stdout)
    assert len(documents) == 4
    for document in documents:
        (answer,) = document["answers"]
        assert document["prompt"] and answer["method"] == "dense" and not answer["output"].isdigit()
        assert (document["target"] == answer["output"]) == answer["correct"]
    for document in json.loads(samples("--level 0.2 --differing --json").stdout):
        assert len({answer["correct"] for answer in document["answers"]}) == 2
    last = json.loads(samples("--docs 5000 --json").stdout)[-1]["doc"]
    assert samples(f"--first {last}").exit_code == 0
    assert "There are no such documents" in samples(f"--first {last + 1}").stdout


@pytest.mark.parametrize(
    ("arguments", "task", "said"),
    [
        ("", None, "nano_math, nano_qa_ll, got none."),
        ("", "gsm8k", "gsm8k"),
        ("--methods mod", "nano_math", "--methods takes specs of the run"),
    ],
)
def test_what_a_run_does_not_have_is_said(samples, arguments, task, said):
    result = samples(arguments, task=task)
    assert result.exit_code == 2 and said in result.said
