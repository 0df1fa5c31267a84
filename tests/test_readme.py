"""What the README and the page of commands show works."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench import registry
from adaptive_bench.cli import main
from adaptive_bench.leaderboard.findings import write_findings
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.planning.shard import Shard
from adaptive_bench.spec import MethodSpec

ROOT = Path(__file__).parent.parent
README, PAGE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/commands.md"))
COMMANDS = sorted(set(re.findall(r"^(adaptive-bench run.*?)(?:  +#.*)?$", README + PAGE, re.MULTILINE)))
SAVING_NOTHING = r"dense \(saves nothing\)|base \(no training\)"
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
    monkeypatch.setattr("adaptive_bench.cli.strict.quiet", lambda: None)
    stand_in = SimpleNamespace(
        preflight=lambda config, reporter: SimpleNamespace(plan=config, estimator=None, notes=[]),
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


def test_the_result_is_that_of_the_published_entry():
    rows = json.loads((ROOT / "leaderboard/entries/nano-all/table.json").read_text(encoding="utf-8"))
    forms = {
        "exact_match,strict-match": (100, "{:.1f} [{:.1f}, {:.1f}]"),
        "bits_per_byte,none": (1, "{:.2f} [{:.2f}, {:.2f}]"),
    }
    scores = {}
    for row in rows:
        if (row["axis"], row["phase"]) == ("net", "all") and row["metric"] in forms and row["score"] is not None:
            unit, form = forms[row["metric"]]
            name = row["method"] + ("@paper" if row["semantics"] == "paper" else "")
            text = form.format(*(unit * row[key] for key in ("score", "low", "high")))
            scores.setdefault((name, row["level"]), {})[row["task"]] = text
    shown = re.findall(rf"^\| ({SAVING_NOTHING}|`\S+`) \| (.+) \| (.+) \| (.+) \|$", README, re.MULTILINE)
    assert len(shown) == sum(level == 0.15 for _, level in scores) + 2
    for name, *found in shown:
        place = (name.split()[0], 0) if re.fullmatch(SAVING_NOTHING, name) else (name.strip("`"), 0.15)
        assert found == [scores[place].get(task, "n/a") for task in ("nano_math", "nano_qa", "nano_text")]


def _told(page, section, task, at=""):
    """A sentence of the findings."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"## {section}\n\n")[2].partition("\n\n")[0]
    (found,) = [line for line in text.splitlines() if line.startswith(f"- **{task}**") and at in line]
    return found


def _ahead(page, task, at):
    found = _told(page, "Who is better than static depth", task, at)
    return {name for part in re.findall(r"ahead ([^;]*)", found) for name in re.findall(r"`(\S+)`", part)}


def test_what_stands_below_the_results_is_what_the_findings_say():
    page = "findings.md"
    both = _ahead(page, r"nano\_math", "at 11.5 %") & _ahead(page, r"nano\_qa", "at 11.2 %")
    (listed,) = re.findall(r"at 11 % (.*?) beat it with\s+certainty", README, re.DOTALL)
    assert set(re.findall(r"`(\S+?)`", listed)) == both
    others = [(r"nano\_math", "23.0"), (r"nano\_qa", "22.3"), (r"nano\_text", "10.4"), (r"nano\_text", "20.7")]
    assert not any(_ahead(page, task, f"at {saving} %") for task, saving in others)
    assert _told(page, "What training was worth", r"nano\_text").endswith("not separated from it: none; better: none.")
    page, pages = "findings_real_text.md", r"perplexity:c4\_sample"
    assert not _ahead(page, pages, "at 13.1 %")
    worse = _told(page, "What training was worth", pages).partition("no training: ")[2].partition(";")[0]
    assert re.findall(r"`(\S+?)`", worse) == ["free", "random_skip"]
    assert "has 12.0 [6.9, 20.0] %" in _told(page, "What training was worth", "lambada")


# The picture is drawn of the page's own tables (`adaptive_bench.docs.results.ahead`).
EARLIER_BACKBONE = (
    "Measured on the backbone before the present one, whose first layer did nearly everything "
    "([why it was replaced](protocol.md#the-backbone)); nothing was trained on stories, so that `nano_text` measures "
    "what was forgotten.\n\n![Scores of all methods with intervals on two tasks, best first, and the ranks that are "
    "left open beside them.](figures/ahead.svg)"
)


@pytest.mark.parametrize(
    ("entry", "page", "note"),
    [("nano-all", "findings.md", EARLIER_BACKBONE), ("real-text-3M", "findings_real_text.md", "")],
)
def test_the_findings_are_those_of_the_published_entries(entry, page, note, tmp_path):
    write_findings([ROOT / "leaderboard/entries" / entry / "table.json"], tmp_path / page, note=note)
    assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8"), (
        f"run: adaptive-bench leaderboard findings leaderboard/entries/{entry} -o docs/{page}"
        + (f" --note '{note}'" if note else "")
    )


def test_the_second_board_says_what_its_entry_says():
    rows = json.loads((ROOT / "leaderboard/entries/real-text-3M/table.json").read_text(encoding="utf-8"))
    scores = {
        (row["method"], row["level"]): "{:.2f} [{:.2f}, {:.2f}]".format(*(row[key] for key in ("score", "low", "high")))
        for row in rows
        if (row["axis"], row["phase"], row["metric"]) == ("net", "all", "bits_per_byte,none")
        and row["score"] is not None
    }
    shown = dict(re.findall(rf"^\| ({SAVING_NOTHING}|`\S+`) \| ([^|]+) \|$", README, re.MULTILINE))
    for name in ("dense (saves nothing)", "base (no training)"):
        assert shown.pop(name) == scores[name.split()[0], 0.0]
    assert shown == {f"`{method}`": score for (method, level), score in scores.items() if level == 0.15}
    accuracies = {row["score"] for row in rows if row["metric"] == "acc,none" and row["method"] != "base"} - {None}
    assert accuracies == {0.0}
