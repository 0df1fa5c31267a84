"""What the README and the page of commands show works."""

import re
import shlex
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench import registry
from adaptive_bench.cli import main
from adaptive_bench.leaderboard.findings import write_findings
from adaptive_bench.leaderboard.frame import read_board
from adaptive_bench.leaderboard.groups import groups_of
from adaptive_bench.leaderboard.page.ranked import ranked, shown_first
from adaptive_bench.leaderboard.texts import NONE
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.spec import MethodSpec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
ENTRIES = ROOT / "leaderboard/entries"
README, PAGE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/commands.md"))
COMMANDS = sorted(set(re.findall(r"^(adaptive-bench run.*?)(?:  +#.*)?$", README + PAGE, re.MULTILINE)))
NET = ("net", "all")
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
    stand_in = SimpleNamespace(
        preflight=lambda config, reporter, **_: SimpleNamespace(plan=config, estimator=None, notes=[]),
        about=lambda config, found, flops_per_s: [],
        describe=lambda config, estimator: reached.append(config) or [],
        Shard=Shard,
        run=lambda config, reporter, **_: SimpleNamespace(
            rows=reached.append(config) or [],
            folder=tmp_path,
            warnings=[],
            failures=[],
            is_main_process=True,
            elsewhere="",
        ),
    )
    monkeypatch.setitem(sys.modules, "adaptive_bench.runs", stand_in)
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


@cache
def _first_view(entry):
    """The ranked table that the board of an entry shows first."""
    return shown_first(_tables(entry), *NET)


@cache
def _tables(entry):
    (group,) = groups_of(read_board([ENTRIES / entry / "table.json"]))
    return ranked(group)


def _shown(table):
    """It as the README has it."""
    saving_nothing = {"dense": "dense (saves nothing)", "base": "base (no training)"}
    yield "| rank | method | overall | " + " | ".join(table["tasks"]) + " | with others' decisions |"
    yield "|---" * (len(table["tasks"]) + 4) + "|"
    for line in table["lines"]:
        if line["label"] == "gated":  # saves nothing and more: it says what gates cost, not what methods are worth
            continue
        name = saving_nothing.get(line["label"], f"`{line['label']}`")
        scores = ["n/a" if cell is None else _score(cell, cell[6]) for cell in line["cells"]]
        rank = "" if line["control"] else line["rank"] or "n/a"
        yield f"| {' | '.join((rank, name, _score(line['overall']), *scores, line['lost'].replace(NONE, '')))} |"
    if table["earlier"]:
        yield f"\n{table['earlier']}"


def _score(texts, marks=""):
    value, low, high = texts[:3]
    return "n/a" if value == NONE else f"{value}{marks} [{low}, {high}]"


def test_the_result_is_that_of_the_published_entry():
    table = _first_view("nano")
    expected = f"**{table['said']}**"
    assert expected in README, f"README.md is to have: {expected}"
    expected = "\n".join(_shown(table))
    assert f"\n\n{expected}\n\n" in README, f"README.md is to have:\n{expected}"


def test_the_result_says_what_was_measured_by_a_former_rule():
    assert FORMER_RULE in " ".join(README.split())


def test_the_marks_of_the_result_are_explained():
    used = {mark for line in _first_view("nano")["lines"] for cell in line["cells"] if cell for mark in cell[6]}
    assert used and all(f"`{mark}`" in README for mark in used)


def test_what_is_said_beside_the_result_holds():
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    over_static = page.partition("## Who is better than static depth")[2].partition("\n| ")[0].strip().splitlines()
    assert len(over_static) == 6 and all(" Ahead of it: none;" in line for line in over_static)
    said = {str(table["level"]): table["said"] for table in _tables("nano") if (table["axis"], table["phase"]) == NET}
    assert all(f"At {level} % saved net FLOPs, skiplayer leads" in said[level] for level in ("5", "10"))
    headroom = page.partition("## Whether there is anything to decide")[2].partition("\n## ")[0]
    sentence = "leaving layers out of this model as it is, no attainable oracle lies above the best static sets"
    assert all(f"On {task}, {sentence}" in headroom for task in ("nano\\_math", "nano\\_qa"))


# Drawn of the page's own tables (`adaptive_bench.docs.figures.ahead`).
PICTURE = (
    "![Scores of all methods with intervals on two tasks, best first, and the ranks that are left open beside them.]"
    "(figures/ahead.svg)"
)
# No version tells specs of one method apart, so no table can say this.
FORMER_RULE = "`gateskip@paper` was measured by the rule that `gateskip[rule=exact_share]@paper` has now."


@pytest.mark.parametrize(
    ("entry", "page", "note"),
    [
        ("nano", "findings.md", f"{PICTURE}\n\n{FORMER_RULE}"),
        ("nano-qwen3", "findings_nano_qwen3.md", ""),
        ("real-text-3M", "findings_real_text.md", ""),
    ],
)
def test_the_findings_are_those_of_the_published_entries(entry, page, note, tmp_path):
    write_findings([ENTRIES / entry / "table.json"], tmp_path / page, note=note)
    assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8"), (
        f"run: adaptive-bench leaderboard findings leaderboard/entries/{entry} -o docs/{page}"
        + (f" --note '{note}'" if note else "")
    )


@pytest.mark.parametrize("entry", ["nano-qwen3", "real-text-3M"])
def test_the_other_boards_say_what_their_entries_say(entry):
    assert f"**{_first_view(entry)['said']}**" in README
