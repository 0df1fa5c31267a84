import json
import os
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from adaptive_bench import registry
from adaptive_bench.cli import listing
from adaptive_bench.cli.options import names_of
from adaptive_bench.methods.dense import Dense
from adaptive_bench.store.results import write_run


class Unprobed(Dense):
    """A plugin with no capabilities.json beside it."""


def test_configs_are_listed_with_their_first_comment(command):
    result = command("list", "configs")
    assert result.exit_code == 0
    for name in registry.names("configs"):
        assert name in result.stdout
    assert "The default" in result.stdout


def test_a_plugin_shows_up_with_its_origin(command, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "mine.py").write_text(
        "from adaptive_bench.registry import register\n"
        "@register('models', 'mine')\n"
        "def mine():\n"
        "    '''A model of mine.'''\n"
    )
    about = command("list", "models", "--plugin", "mine.py").stdout.partition("mine\n")[2]
    assert "A model of mine." in about
    assert "mine.py" in about


@pytest.mark.parametrize(
    ("group", "said"), [("configs", "is the path of a YAML file, got dict"), ("tasks", r"task\.Task, got dict")]
)
def test_what_is_registered_as_something_else_is_a_fault_of_its_plugin(command, tmp_path, monkeypatch, group, said):
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "mine.py").write_text(
        f"from adaptive_bench.registry import register\nregister({group!r}, 'mine')({{}})\n"
    )
    result = command("list", group, "mine", "--plugin", "mine.py")
    assert result.exit_code == 1
    assert re.search(rf"Plugin fault: .*{said} under 'mine'", " ".join(result.stderr.split()))


@pytest.mark.parametrize("width", [80, 140])
def test_runs_are_listed_with_their_state(command, tmp_path, monkeypatch, width):
    assert "no runs yet" in command("list", "runs").stdout
    about = {"methods": ["mod"], "tasks": ["gsm8k"], "model": "nano", "seeds": [1, 2]}
    for name in ("begun", "ended"):
        (tmp_path / "runs" / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / "runs" / name / "config.yaml").write_text(json.dumps(about))
    write_run(tmp_path / "runs" / "runs" / "ended", about | {"state": "done"})
    (tmp_path / "runs" / "runs" / "ended" / "table.json").write_text("[]")
    monkeypatch.setenv("COLUMNS", str(width))
    text = command("list", "runs").stdout
    assert max(map(len, text.splitlines())) <= width
    assert {"begun", "ended", "unfinished", "done", "nano", "mod", "gsm8k"} <= set(text.replace(",", " ").split())
    listed = json.loads(command("list", "runs", "--json").stdout)
    assert {run["run"].rpartition("/")[2]: run["state"] for run in listed} == {"begun": "unfinished", "ended": "done"}


def test_runs_are_filtered(command, tmp_path):
    about = {"methods": ["mod", "calm"], "tasks": ["gsm8k"], "model": "nano", "seeds": [1], "began": "2026-11-20T10:00"}
    for name, changes in (("one", {}), ("two", {"model": "tiny", "tasks": ["csqa"], "finished": "2026-11-22T09:00"})):
        (tmp_path / "runs" / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / "runs" / name / "config.yaml").write_text(json.dumps(about | changes))

    def listed(*options):
        return sorted(run["run"] for run in json.loads(command("list", "runs", "--json", *options).stdout))

    assert listed() == listed("--method", "mod") == listed("--status", "unfinished") == ["one", "two"]
    assert listed("--model", "nano") == listed("--task", "gsm8k") == ["one"]
    assert listed("--since", "2026-11-21") == listed("--model", "tin", "--method", "calm") == ["two"]
    assert listed("--status", "done") == []
    assert listed("two") == ["two"]
    (tmp_path / "runs").rename(tmp_path / "other")
    assert listed("two", "--out", "other") == ["other/two"]
    (tmp_path / "other").rename(tmp_path / "runs")
    assert "no such runs" in command("list", "runs", "--status", "done").stdout


TEXT, NUMBER, TEXTS = (str,), (int, float), (list,)
NOTHING = (type(None),)
SCHEMA = {
    **dict.fromkeys(("name", "description", "origin", "kind", "source", "method", "model", "run", "state"), TEXT),
    "command": TEXT,
    **dict.fromkeys(("date", "problem", "folder"), TEXT),
    **dict.fromkeys(("parameters", "methods", "tasks", "seeds"), TEXTS),
    **dict.fromkeys(("shots", "chance", "steps", "documents"), NUMBER + NOTHING),
    "licence": TEXT + NOTHING,
    "required": (bool,),
    "default": TEXT + NUMBER + TEXTS + NOTHING + (dict,),
}


@pytest.mark.parametrize("what", [*listing.Listed])
def test_json_has_identifiers_for_keys_and_numbers_for_numbers(command, tmp_path, what):
    about = {"methods": ["mod"], "tasks": ["gsm8k"], "model": "nano", "seeds": [1, 2], "train": {"steps": 7}}
    (tmp_path / "runs" / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "runs" / "one" / "config.yaml").write_text(json.dumps(about))
    rows = json.loads(command("list", what, "--json").stdout)
    assert rows
    for row in rows:
        assert all(key.isidentifier() and isinstance(value, SCHEMA[key]) for key, value in row.items()), row
    if what == "runs":
        assert rows[0]["steps"] == 7 and rows[0]["documents"] is None and rows[0]["seeds"] == [1, 2]


@pytest.mark.parametrize("width", [60, 80])
def test_methods_are_a_line_each_and_one_is_a_page(command, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = command("list", "methods").stdout.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == registry.names("methods")
    assert max(map(len, lines)) <= width
    page = command("list", "methods", "gateskip").stdout
    assert "sparsity_weight" in page and "C0" in page and "random_skip" not in page
    wrong = command("list", "methods", "gateskp")
    assert wrong.exit_code == 2 and "'gateskip'" in wrong.stderr


@pytest.mark.parametrize(
    ("complete", "begun", "found"),
    [
        (names_of("methods"), "gates", ["gateskip"]),
        (names_of("methods"), "mod[a=1,b=2],gates", ["mod[a=1,b=2],gateskip"]),
        (names_of("methods"), "gateskip[shape=scalar,kv=evict],cal", ["gateskip[shape=scalar,kv=evict],calm"]),
        (names_of("tasks"), "nano_math,csqa_l", ["nano_math,csqa_ll"]),
        (names_of("configs"), "smo", ["smoke", "smollm2"]),
    ],
)
def test_names_are_completed(complete, begun, found):
    assert complete(begun) == found


def test_the_shell_asks_for_methods_tasks_and_configs(command, monkeypatch):
    for words, expected in (
        ("adaptive-bench run --methods gates", "gateskip"),
        ("adaptive-bench run --tasks nano_ma", "nano_math"),
        ("adaptive-bench run --config smok", "smoke"),
        ("adaptive-bench list methods gates", "gateskip"),
        ("adaptive-bench check gates", "gateskip"),
    ):
        given = {"_ADAPTIVE_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        program = "import sys; sys.argv = ['adaptive-bench']; from adaptive_bench.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **given}
        )
        assert done.stdout.split() == [expected], (words, done.stderr)


def test_what_methods_add_to_a_model(command, tmp_path, make_backbone, monkeypatch):
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)
    make_backbone("llama").save_pretrained(tmp_path / "tiny")
    specs = "gateskip[shape=scalar],gateskip,dense"
    result = command("list", "methods", "--model", "tiny", "--methods", specs)
    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert rows["gateskip"][0] == "8,448"
    assert rows["gateskip[shape=scalar]"][0] == "264"
    assert rows["dense"] == ["0", "0.00%", "0", "0", "0.00%", "0"]


def test_a_method_that_does_not_fit_a_model_is_a_row_unless_asked_for(command, tmp_path, make_backbone, monkeypatch):
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda group: ["dense", "free"] if group == "methods" else names(group))
    make_backbone("llama", num_hidden_layers=1).save_pretrained(tmp_path / "flat")
    everything = command("list", "methods", "--model", "flat")
    assert everything.exit_code == 0, everything.stderr
    assert "not on this model" in " ".join(everything.stdout.split())
    named = command("list", "methods", "--model", "flat", "--methods", "free")
    assert named.exit_code == 2


@pytest.mark.parametrize("arguments", ["tasks --model nano", "methods --methods calm", "tasks --full"])
def test_options_go_with_what_is_listed(command, arguments):
    result = command("list", *arguments.split())
    assert result.exit_code == 2 and arguments.split()[1] in result.stderr


@pytest.mark.parametrize("group", ["methods", "tasks"])
def test_everything_registered_can_be_loaded_first_in_a_fresh_process(group):
    program = [sys.executable, "-m", "adaptive_bench", "list", group]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in registry.names(group):
        assert name in done.stdout


def test_what_a_source_file_shows_is_what_its_import_gives():
    for name in registry.names("methods"):
        assert listing.description_in_source(name) == listing._facts("methods", name)["description"]


def test_a_plugin_among_the_methods_is_imported(command, monkeypatch):
    monkeypatch.setitem(registry._registered, ("methods", "unprobed"), (Unprobed, "this test"))
    assert "A plugin with no capabilities.json beside it." in command("list", "methods").stdout


def test_methods_are_listed_with_what_was_probed_of_them(command, monkeypatch):
    monkeypatch.setitem(registry._registered, ("methods", "unprobed"), (Unprobed, "this test"))
    _, _, after = command("list", "methods", "--full").stdout.partition("What each can do")
    rows = defaultdict(list)
    for line in filter(None, after.splitlines()):  # a row goes on in the next table where one would be too wide
        rows[line.split()[0]] += line.split()
        assert len(line) <= 80
    assert "C0" in rows["gateskip"] and "C2" in rows["gateskip@paper"] and "C1" in rows["mod@paper"]
    assert "calm@paper" not in rows  # does what calm does
    assert "scaled" in rows["mod"] and "exact" in rows["dense"]
    assert "The same for all: families llama, qwen3, gemma2" in " ".join(after.split())
    _, _, alone = command("list", "methods", "d_llm").stdout.partition("adaptive-bench check`:\n\n")
    assert alone.startswith("families llama")  # with one row nothing differs, and nothing is the same for all
    missing = " ".join(after.partition("Not probed yet: ")[2].split())
    assert "unprobed" in missing and "`adaptive-bench check NAME` does it." in missing


def test_a_part_of_a_config_has_all_its_keys(command):
    every = [row["name"] for row in json.loads(command("list", "keys", "--json").stdout)]
    named = [row["name"] for row in json.loads(command("list", "keys", "train", "--json").stdout)]
    assert named == [name for name in every if name.startswith("train.")]
    assert command("list", "keys", "trai").exit_code == 2
