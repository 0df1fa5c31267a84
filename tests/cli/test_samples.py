import json
import shutil

import pytest

from adaptive_bench.store import manifest


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished smoke run on nano."""
    from adaptive_bench.config_file import load_config
    from adaptive_bench.runs import run

    changes = {"tasks": "nano_math,nano_qa_ll", "methods": "dense,random_skip", "train": {"steps": 0}}
    changes |= {"out": tmp_path_factory.mktemp("out"), "device": "cpu", "match_on": "tokens"}
    return run(load_config("smoke", changes)).folder


@pytest.fixture(autouse=True)
def _not_quiet(monkeypatch):
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)


def test_prompt_target_and_every_method(command, finished):
    result = command("samples", str(finished), "--task", "nano_math", "--level", "0.2", "--docs", "2")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("document")] == ["0", "1"]
    assert sum(line.startswith("prompt") for line in lines) == sum(line.startswith("target") for line in lines) == 2
    assert sum(line.startswith("dense, saves 0.0 % of tokens") for line in lines) == 2
    assert sum(line.startswith("random_skip, saves") for line in lines) == 2


def test_what_a_run_does_not_have_is_not_shown_silently(command, finished):
    how = ("samples", str(finished), "--task", "nano_math")
    last = json.loads(command(*how, "--docs", "5000", "--json").stdout)[-1]["doc"]
    result = command(*how, "--first", str(last + 1))
    told = " ".join(result.stderr.split())
    assert result.exit_code == 2 and f"nano_math has 0 to {last} in this run, got {last + 1}. Lower it." in told
    assert command(*how, "--first", str(last)).exit_code == 0
    result = command(*how, "--shuffled")
    assert result.exit_code == 2 and "a run with --shuffled measures" in " ".join(result.stderr.split())


def test_the_point_is_found_on_the_axis_of_the_runs_table(command, finished, monkeypatch):
    """Net FLOPs: the dense part of a model is not saved, so the same share of them takes more tokens."""
    how = (
        "samples",
        str(finished),
        "--task",
        "nano_math",
        "--level",
        "0.2",
        "--methods",
        "random_skip",
        "--docs",
        "1",
    )
    by_tokens = json.loads(command(*how, "--json").stdout)[0]["answers"][0]
    monkeypatch.setattr("adaptive_bench.cli.samples.read_run", lambda file: {"match_on": "net"})
    told = command(*how).stdout
    assert "% of net FLOPs" in told and "% of tokens" not in told
    by_net = json.loads(command(*how, "--json").stdout)[0]["answers"][0]
    known = manifest.read(finished)
    (one,) = (one for one in known.evaluations if (one.method, one.task) == ("random_skip", "nano_math"))
    record = known.record_of(one)
    measured = [point.savings["net"] for point in record.points().values()]
    assert abs(by_net["saved"] - 0.2) == pytest.approx(min(abs(net - 0.2) for net in measured))
    assert by_net["asked"] >= by_tokens["asked"]


def test_choices_are_shown_as_text(command, finished):
    result = command("samples", str(finished), "--task", "nano_qa_ll", "--methods", "dense", "--json", "--docs", "4")
    documents = json.loads(result.stdout)
    assert len(documents) == 4
    for document in documents:
        (answer,) = document["answers"]
        assert document["prompt"] and answer["method"] == "dense" and not answer["output"].isdigit()


def test_only_documents_that_differ(command, finished):
    result = command("samples", str(finished), "--task", "nano_math", "--level", "0.2", "--differing", "--json")
    for document in json.loads(result.stdout):
        assert len({answer["correct"] for answer in document["answers"]}) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nano_math, nano_qa_ll, got none."),
        (["--task", "gsm8k"], "gsm8k"),
        (["--task", "nano_math", "--methods", "mod"], "--methods takes specs of the run"),
    ],
)
def test_mistakes(command, finished, arguments, said):
    result = command("samples", str(finished), *arguments)
    assert result.exit_code == 2 and said in " ".join(result.stderr.split())


def test_a_damaged_run_is_shown_on_no_other_axis(command, finished, tmp_path):
    home = shutil.copytree(finished.parents[1], tmp_path / "out")
    (home / "runs" / finished.name / "run.json").write_text("")
    result = command("samples", str(home / "runs" / finished.name), "--task", "nano_math")
    assert result.exit_code == 1 and not result.stdout and "run.json" in result.stderr


def test_a_folder_that_is_no_run(command, tmp_path):
    result = command("samples", str(tmp_path))
    assert result.exit_code == 2 and "list runs" in result.stderr
