"""lm-eval's names without lm-eval: the same ones, from a file when nothing changed."""

import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval import tasks
from lm_eval.tasks._index import TaskIndex

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation import stock_tasks

FOLDERS = ("hellaswag", "mmlu", "piqa", "afrobench/adr", "bbh", "super_glue", "scrolls", "wikitext")


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stock_tasks.stock_tasks.cache_clear()
    yield tmp_path / "adaptive-bench" / "lm_eval_tasks.json"
    stock_tasks.stock_tasks.cache_clear()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_scan_finds_what_lm_eval_finds(folder):
    root = Path(tasks.__file__).parent / folder
    theirs = TaskIndex.build([root])
    ours = stock_tasks._scan(root)
    assert ours.keys() == theirs.keys()
    for name, entry in theirs.items():
        found = ours[name]
        assert found.kind == entry.kind.name.lower().removeprefix("py_")
        assert found.file == (None if entry.yaml_path is None else str(entry.yaml_path))
        assert set(found.members) == (entry.tags if found.kind == "tag" else set())


def test_names_are_kept_until_lm_eval_changes(own_cache, monkeypatch):
    first = stock_tasks.stock_tasks()
    assert first["piqa"].kind == "task" and first["mmlu"].kind == "group"
    stock_tasks.stock_tasks.cache_clear()
    monkeypatch.setattr(stock_tasks, "_scan", lambda root: pytest.fail("scanned again"))
    assert stock_tasks.stock_tasks() == first
    stock_tasks.stock_tasks.cache_clear()
    monkeypatch.setattr(stock_tasks, "version", lambda name: "another")
    monkeypatch.setattr(stock_tasks, "_scan", lambda root: {})
    assert stock_tasks.stock_tasks() == {}


@pytest.mark.parametrize("content", ["", "[]", '{"stamp": 1}', "{"])
def test_a_damaged_cache_is_made_anew(own_cache, monkeypatch, content):
    own_cache.parent.mkdir()
    own_cache.write_text(content)
    monkeypatch.setattr(stock_tasks, "_scan", lambda root: {"a": stock_tasks.Stock("tag", None, ("b",))})
    assert stock_tasks.stock_tasks()["a"].members == ("b",)


def test_a_home_that_cannot_be_written_costs_time_only(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(stock_tasks, "_scan", lambda root: {})
    stock_tasks.stock_tasks.cache_clear()
    assert stock_tasks.stock_tasks() == {}
    stock_tasks.stock_tasks.cache_clear()


def test_names_are_found_without_importing_lm_eval():
    program = (
        "import sys\nfrom adaptive_bench.evaluation.stock_tasks import stock_tasks\n"
        "assert 'piqa' in stock_tasks()\nassert not {'torch', 'lm_eval', 'datasets'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)


def test_a_task_that_is_told_its_data_is_known_by_what_stands_before_the_colon():
    stock_tasks.check_task_name("perplexity:HuggingFaceFW/fineweb")
    with pytest.raises(UsageError, match="No task is called 'perplexty:novels'"):
        stock_tasks.check_task_name("perplexty:novels")
