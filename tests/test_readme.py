"""What the README, the page of commands and the notebook show works."""

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import typer
from transformers import LlamaConfig, LlamaForCausalLM

import adaptive_bench
from adaptive_bench import registry, runs
from adaptive_bench.cli import main
from adaptive_bench.cli.program import app
from adaptive_bench.leaderboard.list_text import short
from adaptive_bench.leaderboard.standing import RULE, Standing
from adaptive_bench.leaderboard.terminal import WIDTH
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.spec import MethodSpec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
README, PAGE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/commands.md"))
COMMANDS = sorted(set(re.findall(r"^(adaptive-bench run.*?)(?:  +#.*)?$", README + PAGE, re.MULTILINE)))
FIRST_LINES, EXAMPLE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    """The example method as a file in the current folder."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "every_so_often.py"
    path.write_text(EXAMPLE)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, plugin, monkeypatch, tmp_path):
    reached = []
    (tmp_path / "data").mkdir()
    (tmp_path / "mine.yaml").write_text("extends: nano\n")
    (tmp_path / "slurm.yaml").write_text("{}\n")
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)
    outcome = SimpleNamespace(rows=[], folder=tmp_path, warnings=[], failures=[], is_main_process=True, elsewhere="")
    stand_ins = {
        "preflight": lambda config, reporter, **_: SimpleNamespace(plan=config, estimator=None, notes=[]),
        "about": lambda config, found: [],
        "describe": lambda config, estimator: reached.append(config) or [],
        "run": lambda config, reporter, **_: reached.append(config) or outcome,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(runs, name, stand_in)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert len(reached) == 1


def test_the_example_method_saves_what_its_dial_says(plugin):
    registry.load_plugin(plugin)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = AdaptiveModel.build(LlamaForCausalLM(config), MethodSpec.parse("every_so_often"), seed=1).eval()
    model.dial = model.method.dial_for(0.25)
    with torch.inference_mode():
        model.forward(torch.randint(32, (2, 40)))
    assert model.compute_report()["saved"]["tokens"] == pytest.approx(0.25)


def test_the_lines_in_python(capsys):
    exec(compile(FIRST_LINES, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "12 apples" in printed and "'tokens': 0.1" in printed


def test_the_output_has_the_form_of_a_list():
    """Columns and rule as a run prints them; the controls that everything is compared with are there."""
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert RULE.format(over="documents") in " ".join(shown.split())
    title, *_ = shown.splitlines()
    assert title.startswith("16.7 % of the layers' FLOPs saved")
    header, body = short(Standing("layers", "all", 1 / 6, (), (), ()), ())
    (columns,) = (line for line in shown.splitlines() if line.startswith("rank "))
    assert columns.split() == " ".join(header).split() and not body
    assert all(f" {name} " in shown for name in ("dense", "base", "static_depth[trained=true]", "random_skip"))
    assert max(map(len, shown.splitlines())) <= WIDTH


def printed(cell):
    """What a cell of a notebook shows, as text."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(part) for part in parts)


def test_every_cell_of_the_notebook_runs_and_it_is_stored_without_results(tmp_path):
    """What a notebook shows depends on who ran it last: that is no change of ours."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (the dev extra)")
    import nbformat

    notebook = nbformat.read(ROOT / "docs" / "first_steps.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [printed(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert shown[1].count("asked") == 3 and "tokens 0.0%" in shown[1]
    assert "generated_text" in shown[2]
    assert "gateskip" in shown[3] and "dense" in shown[3]
    assert "'tokens': 0." in shown[4]


# What users import from: the package itself, loaded lazily, and one module for authors of methods; all features.
METHOD_FILES = sorted(ROOT.glob("methods/*.py"))
IMPORTING = [ROOT / "docs/tutorial_add_a_method.md", ROOT / "README.md"]
TEMPLATE = ROOT / "adaptive_bench/cli/templates/new_method/method.txt"


def test_every_name_of_the_package_is_that_of_its_home_and_in_the_stub():
    for name in adaptive_bench.__all__:
        if not name.startswith("_"):
            home = importlib.import_module(adaptive_bench._HOMES[name])
            assert getattr(adaptive_bench, name) is getattr(home, name)
    stub = (ROOT / "adaptive_bench/__init__.pyi").read_text()
    assert set(re.findall(r"import (\w+) as \1", stub)) == set(adaptive_bench._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(adaptive_bench, "nothing")  # noqa: B009 - the lookup is the test


def imported(source):
    """Modules of the core that a source imports from."""
    nodes = ast.walk(ast.parse(source))
    return {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).startswith("adaptive_bench")
    }


def test_methods_of_ours_of_pages_and_new_ones_import_from_the_public_face_alone():
    sources = [file.read_text() for file in METHOD_FILES]
    blocks = [block for page in IMPORTING for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    sources += [block for block in blocks if "@register" in block]
    template = TEMPLATE.read_text().replace("$class_name", "Mine").replace("${class_name}", "Mine")
    sources.append(re.sub(r"\$\w+", "mine", template))
    assert len(sources) > len(METHOD_FILES) + 2
    for source in sources:
        assert imported(source) <= {"adaptive_bench.method"}, source[:200]


# Each row of docs/features.md has a command that is one, and a test that is there.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/features.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]
assert len(ROWS) > 20, "without rows nothing would be tried"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_command_has_the_options_that_are_given_to_it_and_a_test_is_there(row):
    assert int(row[0]) == ROWS.index(row) + 1
    (path,) = re.findall(r"`(tests/[^`]+)`", row[3])
    assert "def test_" in (ROOT / path).read_text(encoding="utf-8")
    program, *words = shlex.split(row[2].strip("`"))
    assert program == "adaptive-bench"
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if words[0] not in command.commands and "show" in command.commands:
            words.insert(0, "show")  # of `leaderboard RUN`
        command = command.get_command(None, words.pop(0))
    if command.name == "lm-eval":  # its options are lm-eval's
        return
    context = command.context_class(command, info_name=row[0])
    known = {name for param in command.get_params(context) for name in param.opts}
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert given <= known, given - known
