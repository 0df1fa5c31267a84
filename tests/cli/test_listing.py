import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from typing import get_args

import pytest

from adaptive_bench import registry
from adaptive_bench.cli import listing
from adaptive_bench.cli.options import names_of
from adaptive_bench.methods.dense import Dense
from adaptive_bench.store.runs import write_run


class Unprobed(Dense):
    """A plugin with no capabilities.json beside it."""


@pytest.fixture
def runs(tmp_path):
    """Two runs, of which the second has ended."""
    about = {"methods": ["mod", "calm"], "tasks": ["gsm8k"], "model": "nano", "seeds": [1, 2], "train": {"steps": 7}}
    other = {"model": "tiny", "tasks": ["csqa"], "finished": "2026-11-22T09:00", "state": "done"}
    for name, changes in (("one", {"began": "2026-11-20T10:00"}), ("two", other)):
        folder = tmp_path / "runs" / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps(about | changes))
        if "state" in changes:
            write_run(folder, about | changes)
            (folder / "table.json").write_text("[]")


def test_a_plugin_shows_up_with_its_origin(command, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    code = "@register('models', 'mine')\ndef mine():\n    '''A model of mine.'''\n"
    (tmp_path / "mine.py").write_text(f"from adaptive_bench.registry import register\n{code}")
    about = command("list models --plugin mine.py").stdout.partition("mine\n")[2]
    assert "A model of mine." in about and "mine.py" in about
    monkeypatch.setitem(registry._registered, ("methods", "unprobed"), (Unprobed, "this test"))
    assert "A plugin with no capabilities.json beside it." in command("list methods").stdout


@pytest.mark.parametrize(
    ("group", "said"), [("configs", "must be the path of a YAML file, got dict"), ("tasks", r"task\.Task, got dict")]
)
def test_what_is_registered_as_something_else_is_a_fault_of_its_plugin(command, tmp_path, monkeypatch, group, said):
    monkeypatch.setattr(registry, "_registered", {})
    code = f"from adaptive_bench.registry import register\nregister({group!r}, 'mine')({{}})\n"
    (tmp_path / "mine.py").write_text(code)
    result = command(f"list {group} mine --plugin mine.py")
    assert result.exit_code == 1 and re.search(rf"Plugin fault: .*{said} under 'mine'", result.said)


def test_runs_are_listed_with_their_state(command, runs, tmp_path, monkeypatch):
    def listed(options=""):
        return sorted(run["run"] for run in json.loads(command(f"list runs --json {options}").stdout))

    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        text = command("list runs").stdout
        assert max(map(len, text.splitlines())) <= width
        shown = {"one", "two", "unfinished", "done", "nano", "tiny", "mod", "calm", "gsm8k", "csqa"}
        assert shown <= set(text.replace(",", " ").split())
    assert listed() == ["one", "two"] and listed("two") == ["two"]
    (tmp_path / "runs").rename(tmp_path / "other")
    assert listed("two --out other") == ["other/two"] and "no runs yet" in command("list runs").stdout


TEXT, NUMBER, TEXTS, NOTHING = (str,), (int, float), (list,), (type(None),)
SCHEMA = {
    **dict.fromkeys(("name", "description", "origin", "kind", "source", "method", "model", "run", "state"), TEXT),
    **dict.fromkeys(("date", "problem", "folder"), TEXT),
    **dict.fromkeys(("parameters", "methods", "tasks", "seeds"), TEXTS),
    **dict.fromkeys(("shots", "chance", "steps", "documents"), NUMBER + NOTHING),
    **dict.fromkeys(("licence", "training_text"), TEXT + NOTHING),
    "required": (bool,),
    "default": TEXT + NUMBER + TEXTS + NOTHING + (dict,),
}


@pytest.mark.parametrize("what", get_args(listing.Listed))
def test_json_has_identifiers_for_keys_and_numbers_for_numbers(command, runs, what):
    rows = json.loads(command(f"list {what} --json").stdout)
    assert rows
    for row in rows:
        assert all(key.isidentifier() and isinstance(value, SCHEMA[key]) for key, value in row.items()), row
    if what == "runs":
        assert all(row["steps"] == 7 and row["documents"] is None and row["seeds"] == [1, 2] for row in rows)


@pytest.mark.parametrize("width", [60, 80])
def test_methods_are_a_row_each_and_one_is_a_page(command, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = command("list methods").stdout.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[2:] if line[0] != " "] == registry.names("methods")
    assert max(map(len, lines)) <= width
    page = command("list methods gateskip").stdout
    assert "sparsity_weight" in page and "C0" in page and "random_skip" not in page
    wrong = command("list methods gateskp")
    assert wrong.exit_code == 2 and "'gateskip'" in wrong.stderr


def test_the_last_name_of_a_list_is_completed():
    assert names_of("methods")("gates") == ["gateskip"]
    assert names_of("methods")("mod[a=1,b=2],cal") == ["mod[a=1,b=2],calm"]
    assert names_of("tasks")("nano_math,csqa_l") == ["nano_math,csqa_ll"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run --methods gates", "gateskip"),
        ("run --tasks nano_ma", "nano_math"),
        ("run --config smok", "smoke"),
        ("list methods gates", "gateskip"),
    ],
)
def test_the_shell_asks_for_methods_tasks_and_configs(words, expected):
    given = {"COMP_WORDS": f"adaptive-bench {words}", "COMP_CWORD": str(words.count(" ") + 1)}
    given |= {**os.environ, "_ADAPTIVE_BENCH_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv = ['adaptive-bench']; from adaptive_bench.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given)
    assert done.stdout.split() == [expected], done.stderr


def test_options_go_with_what_is_listed(command):
    result = command("list tasks --full")
    assert result.exit_code == 2 and "--full" in result.stderr


def test_every_task_can_be_loaded_first_in_a_fresh_process():
    """As methods and configs can, which `tests/runs/test_readers.py` lists."""
    done = subprocess.run([sys.executable, "-m", "adaptive_bench", "list", "tasks"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in registry.names("tasks"))


def test_what_a_source_file_shows_is_what_its_import_gives():
    for name in registry.names("methods"):
        assert listing.description_in_source(name) == listing._facts("methods", name)["description"]


def test_methods_are_listed_with_what_was_probed_of_them(command, monkeypatch):
    monkeypatch.setitem(registry._registered, ("methods", "unprobed"), (Unprobed, "this test"))
    _, _, after = command("list methods --full").stdout.partition("What each can do")
    rows = defaultdict(list)
    for line in filter(None, after.splitlines()):  # a row goes on in the next table where one would be too wide
        rows[line.split()[0]] += line.split()
        assert len(line) <= 80
    assert "C0" in rows["gateskip"] and "C2" in rows["gateskip@paper"] and "C1" in rows["mod@paper"]
    assert "calm@paper" not in rows  # does what calm does
    assert "scaled" in rows["mod"] and "exact" in rows["dense"]
    assert "The same for all: families llama, qwen3, gemma2" in " ".join(after.split())
    assert "unprobed" in after.partition("Not probed yet: ")[2]
    _, _, alone = command("list methods d_llm").stdout.partition("adaptive-bench check`:\n\n")
    assert alone.startswith("families llama")  # with one row nothing differs, and nothing is the same for all
