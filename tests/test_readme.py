"""What the README and the page of commands show works."""

import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench import registry, runs
from adaptive_bench.cli import main
from adaptive_bench.leaderboard.standing import RULE, Standing
from adaptive_bench.leaderboard.table_cells import short
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
        "about": lambda config, found, flops_per_s: [],
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
    assert RULE in " ".join(shown.split())
    title, *_ = shown.splitlines()
    assert title.startswith("16.7 % of the layers' FLOPs saved")
    header, body = short(Standing("layers", "all", 1 / 6, (), (), (), None, 1), ())
    (columns,) = (line for line in shown.splitlines() if line.startswith("rank "))
    assert columns.split() == " ".join(header).split() and not body
    assert all(f" {name} " in shown for name in ("dense", "base", "static_depth[trained=true]", "random_skip"))
    assert max(map(len, shown.splitlines())) <= WIDTH
