"""`adaptive-bench inspect` on a run of the nano model and on the nano model itself."""

import io
import json
import re

import pandas
import pytest

from adaptive_bench.config import load_config
from adaptive_bench.runs import run

TEXT = "Tom has 12 apples. He gives 4 apples to Ann. How many apples does Tom have now?\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    values = {"methods": "dense,gateskip,mod", "tasks": "nano_math", "out": tmp_path_factory.mktemp("inspect")}
    return run(load_config("smoke", values | {"device": "cpu"}), jobs=1).folder


@pytest.fixture
def inspect(command, folder, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)

    def given(*more, model=folder):
        return command("inspect", str(model), "--device", "cpu", *more)

    return given


def test_it_prints_rates_of_the_methods_that_decide(inspect):
    result = inspect("--text", "text.txt", "--max-new-tokens", "4")
    assert result.exit_code == 0, result.stderr
    assert re.findall(r"^(gateskip|mod|dense) +tokens", result.stdout, re.MULTILINE) == ["gateskip", "mod"]
    assert "function word" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_page_a_table_and_json_say_the_same(inspect, tmp_path):
    common = ("--text", "text.txt", "--max-new-tokens", "4", "--methods", "gateskip")
    for name in ("page.html", "all.csv", "all.parquet", "all.json"):
        result = inspect(*common, "-o", name)
        assert result.exit_code == 0, result.stderr
    record = json.loads((tmp_path / "all.json").read_text())
    table = pandas.read_csv(tmp_path / "all.csv", keep_default_na=False, na_values={"score": [""]})
    pandas.testing.assert_frame_equal(table, pandas.read_parquet(tmp_path / "all.parquet"), check_dtype=False)
    rate = 1 - table.groupby("saving")["executes"].mean()
    for saving, point in record["methods"][0]["points"].items():
        assert rate[float(saving)] == pytest.approx(point["saved"])
    page = (tmp_path / "page.html").read_text()
    assert json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]) == record


def test_standard_input_a_given_answer_and_untrained_methods_on_a_plain_model(inspect, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    record = json.loads(inspect("--text", "-", "--max-new-tokens", "0", "--json", "--methods", "mod").stdout)
    assert record["prompt_tokens"] == record["tokens"] and record["methods"][0]["spec"] == "mod"
    (tmp_path / "answer.txt").write_text("Tom 12 - 4 = 8.")
    record = json.loads(inspect("--text", "text.txt", "--answer", "answer.txt", "--json").stdout)
    assert "".join(record["pieces"][record["prompt_tokens"] :]).strip() == "Tom 12 - 4 = 8."
    record = json.loads(inspect("--text", "text.txt", "--methods", "random_skip", "--json", model="nano").stdout)
    assert record["savings"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def test_documents_of_a_task_and_the_papers_gate_analysis(inspect, tmp_path):
    result = inspect("--tasks", "nano_math", "--limit", "2", "--json")
    assert json.loads(result.stdout)["texts"] == 2
    result = inspect("--tasks", "nano_math", "--limit", "2", "--paper", "-o", "gates.json")
    assert result.exit_code == 0, result.stderr
    record = json.loads((tmp_path / "gates.json").read_text())
    assert [one["spec"] for one in record["methods"]] == ["gateskip"]
    assert "the BOS token has the highest mean gate" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--text", "text.txt", "--tasks", "nano_math"), "got both"),
        (("--tasks", "nano_math", "--answer", "text.txt"), "--answer is for --text"),
        (("--text", "text.txt", "--paper"), "--paper repeats the paper's analysis: give --tasks"),
        (("--tasks", "nano_math", "--paper", "--savings", "0.1"), "and no --savings"),
        (("--tasks", "nano_math", "--paper", "-o", "page.html"), "written as .json"),
        (("--text", "text.txt", "--methods", "free"), "got --methods 'free'"),
        (("--text", "text.txt", "-o", "map.svg", "--max-new-tokens", "1"), "ends in one of .html, .csv"),
        (("--tasks", "nano_math", "--limit", "1", "--paper", "--methods", "mod"), "branch, but mod has none"),
    ],
)
def test_what_does_not_go_together_is_refused(inspect, more, said):
    result = inspect(*more)
    assert result.exit_code == 2 and said in result.said


def test_what_cannot_be_read_is_said(inspect, tmp_path):
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.txt").write_text(" \n")
    for file, code in (("absent.txt", 1), ("bytes.txt", 1), ("empty.txt", 2)):
        result = inspect("--text", file)
        assert result.exit_code == code and file in result.stderr
    result = inspect("--text", "text.txt", model="nano")
    assert result.exit_code == 2 and "no --methods" in result.said


def test_a_run_of_two_tasks_shows_the_dial_values_of_one_and_says_which(inspect, tmp_path):
    values = {"methods": "gateskip", "tasks": "nano_math,nano_qa", "out": tmp_path / "two", "device": "cpu"}
    two = run(load_config("smoke", values), jobs=1).folder
    result = inspect("--text", "text.txt", "--max-new-tokens", "0", "--json", model=two)
    assert result.exit_code == 0 and "those of nano_math." in result.said
    assert max(json.loads(result.stdout)["savings"]) > 0


def test_of_a_quantized_run_no_decisions_are_shown_that_it_did_not_make(inspect, command, tmp_path):
    pytest.importorskip("torchao")
    values = {"methods": "gateskip", "tasks": "nano_math", "out": tmp_path / "int8", "device": "cpu"}
    small = str(run(load_config("smoke", values | {"evaluation": {"quantize": "int8"}}), jobs=1).folder)
    drafting = command("speculate", small, "--method", "gateskip", "--tasks", "nano_math", "--device", "cpu")
    for result in (inspect("--text", "text.txt", model=small), drafting):
        assert result.exit_code == 2 and "evaluated with --quantize int8" in result.said
        assert "without --quantize" in result.said
