import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from adaptive_bench.cli.run import _unchecked
from adaptive_bench.config import load_config
from adaptive_bench.jobs.job import Failure
from adaptive_bench.runs import Shard
from adaptive_bench.runs.runner import notes_on
from adaptive_bench.store.runs import write_run
from adaptive_bench.tables.comparability import QUICK_NOTE

ROW = {"method": "gateskip", "semantics": "bench", "task": "nano_math", "metric": "exact_match,strict-match"}
ROW |= {"phase": "all", "level": 0.1, "score": 0.9, "low": None, "high": None, "seeds": 1, "status": "ok"}
ROW |= {"axis": "net", "saved_tokens": 0.2, "saved_core": 0.15, "saved_net": 0.1}
ROWS = [ROW, ROW | {"method": "dense", "score": 1.0}]
TRAINED = "static_depth[trained=true]"


class Runs:
    """Stands for `adaptive_bench.runs`: keeps the config it gets and leaves a table."""

    config = None
    error: BaseException | None = None
    failures: tuple[Failure, ...] = ()

    Shard = Shard

    def preflight(self, config, reporter, **how):
        self.config = config
        return SimpleNamespace(plan=config, estimator=None, notes=["a digit has no token"])

    def about(self, config, found):
        return [f"recipe  {config.preset}"]

    def describe(self, plan, estimator):
        return [{"cell": "gateskip", "seed": 1, "cached": "no"}]

    def run(self, config, reporter, **_):
        self.config = config
        reporter.line("training gateskip")
        if self.error:
            raise self.error
        folder = config.out / "first"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.json").write_text(json.dumps(ROWS))
        write_run(folder, {})
        about = {"rows": ROWS, "folder": folder, "warnings": ["the dial of mod moves nothing"], "elsewhere": ""}
        ended = {"failures": self.failures, "exit_code": 1 if self.failures else 0, "is_main_process": True}
        return SimpleNamespace(**about, **ended)


@pytest.fixture
def runs(monkeypatch):
    runs = Runs()
    monkeypatch.setitem(sys.modules, "adaptive_bench.runs", runs)
    return runs


def test_flags_reach_the_config_and_without_any_it_is_the_default(command, runs, tmp_path):
    assert command("run").exit_code == 0
    assert runs.config.methods == ("dense", "base", "random_skip", TRAINED, "gateskip", "mod")
    flags = (
        "--config nano --no-controls --methods gateskip[b=2,a=1],mod@paper --tasks gsm8k,csqa --model folder --seeds 3 "
        "--levels 0,0.1 --limit 50 --axis tokens --phase decode --num-fewshot 2 --train-steps 7 "
        f"--train-on gsm8k --out there --device cpu --data-dir {tmp_path}"
    )
    assert command(f"run {flags}").exit_code == 0
    config = runs.config
    assert (config.methods, config.tasks) == (("gateskip[a=1,b=2]", "mod@paper"), ("gsm8k", "csqa"))
    assert (config.model, config.seeds, config.levels) == ("folder", (1, 2, 3), (0.0, 0.1))
    assert (config.match_on, config.match_phase) == ("tokens", "decode")
    assert (config.evaluation.limit, config.evaluation.num_fewshot, config.train.steps) == (50, 2, 7)
    assert (config.train_on, config.out, config.device) == (("gsm8k",), Path("there"), "cpu")
    assert config.data_dir == tmp_path
    for text, seeds in (("2", (1, 2)), ("1,2,5", (1, 2, 5)), ("4,", (4,))):  # a number or a list
        command(f"run --seeds {text}")
        assert runs.config.seeds == seeds


@pytest.mark.parametrize(
    ("arguments", "methods"),
    [
        ("--methods gateskip,mod", ("gateskip", "mod", "dense", TRAINED)),
        ("--methods dense,random_skip", ("dense", "random_skip", TRAINED)),
        ("--methods mod,static_depth", ("mod", "static_depth", "dense")),
        ("--methods mod --train-steps 0", ("mod", "dense", "static_depth")),
        ("--methods mod --no-controls", ("mod",)),
        ("--methods dense,base", ("dense", "base")),
        ("--config smoke", ("dense", "gateskip")),
    ],
)
def test_methods_of_the_command_line_get_the_controls_they_lack(command, runs, arguments, methods):
    result = command(f"run {arguments}")
    option, asked, *_ = arguments.split()
    added = methods[asked.count(",") + 1 :] if option == "--methods" else ()
    assert runs.config.methods == methods
    assert ("controls" in result.stderr) == bool(added)


def test_which_controls_are_added_is_said_and_they_are_for_methods_alone(command, runs):
    told = " ".join(command("run --methods mod --dry-run").stdout.split())
    assert told.startswith(f"Compared with dense and {TRAINED} as well") and "--no-controls leaves out" in told
    result = command("run --config smoke --no-controls")
    assert result.exit_code == 2 and "--no-controls is for --methods" in result.said


def test_quick_is_smaller_in_everything_but_what_is_named_or_smaller_already(command, runs):
    command("run --quick --limit 64 --set evaluation.calibration_examples=32")
    config = runs.config
    assert (config.train.steps, config.evaluation.limit, config.evaluation.calibration_examples) == (20, 64, 32)
    assert config.train.warmup_steps < config.train.steps and config.is_quick
    assert config.train.batch_size == 32, "the rest of the recipe stays"
    command("run --quick --train-steps 8")
    assert (runs.config.train.steps, runs.config.train.warmup_steps, runs.config.evaluation.limit) == (8, 2, 16)
    small = load_config("smoke")
    command("run --config smoke --quick")
    train = small.train.model_copy(update={"warmup_steps": 0})
    assert runs.config.model_copy(update={"preset": "smoke"}) == small.model_copy(update={"train": train})
    assert runs.config.is_quick and not small.is_quick


def test_a_quick_table_says_that_it_is_not_to_be_quoted(command, runs):
    assert "Quick: not to be quoted" in command("run --quick").stdout
    (note,) = notes_on([], runs.config)
    assert note.startswith(QUICK_NOTE) and "20 steps" in note and "at most 16 documents" in note
    assert "nano --quick" in command("run --quick --dry-run").stdout
    assert "Quick" not in command("run").stdout and notes_on([], runs.config) == []


def test_the_end_is_the_list_the_warnings_the_commands_and_the_place(command, runs):
    result = command("run --out there")
    assert ["1", "gateskip", "90"] in [line.split()[:3] for line in result.stdout.splitlines()]
    assert "Note: the dial of mod moves nothing" in result.stdout and "chooses" not in result.stdout
    assert result.stdout.rstrip().endswith("Written to there/first") and "training gateskip" in result.stderr
    assert "What each model wrote:\n  adaptive-bench samples there/first" in result.stdout
    assert "chooses" in command("run --all").stdout
    assert "The page:\n  adaptive-bench leaderboard build there/first --open" in command("run --out there").stdout


def test_work_that_failed_is_told_beside_the_table(command, runs):
    cause = ("the loss became NaN.", "Training diverged", Path("there/log.txt"), "Traceback")
    runs.failures = tuple(Failure(f"train {name}, seed 1", *cause) for name in ("mod", "calm"))
    result = command("run")
    assert result.exit_code == 1 and "gateskip" in result.stdout and "Traceback" not in result.said
    told = "Failed: train mod, seed 1, train calm, seed 1: Training diverged: the loss became NaN. Log: there/log"
    assert told in result.said and result.said.count("the loss became NaN") == 1
    assert "Traceback" in command("run --debug").stderr


def test_a_dry_run_prints_the_plan_and_runs_nothing_and_ctrl_c_says_that_the_state_is_kept(command, runs):
    runs.error = AssertionError("ran")
    result = command("run --dry-run")
    assert result.exit_code == 0
    assert all(part in result.stdout for part in ("recipe  nano", "cached", "gateskip", "Note: a digit has no token"))
    runs.error = KeyboardInterrupt()
    result = command("run --out there")
    assert result.exit_code == 130 and "kept in 'there'" in result.said and "Traceback" not in result.stderr


def test_a_plugin_file_is_loaded_before_anything_else(command, runs, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module")
    result = command("run --plugin broken.py --methods [")
    assert result.exit_code == 1 and "no_such_module" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--phase both", "--phase is wrong"),
        ("--axis claimed --phase decode", "match_phase is for savings"),
        ("--resources slurm.yaml", "--launcher"),
    ],
)
def test_bad_usage_ends_with_exit_code_2_before_anything_is_done(command, runs, arguments, message):
    result = command(f"run {arguments}")
    assert result.exit_code == 2 and message in result.said and runs.config is None


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ({}, "'mine' (a plugin) was never checked"),
        ({"mine": {"causality": "C0, C2 (qwen2)"}}, "depend on more than earlier text (causality C0, C2 (qwen2))"),
        ({"mine": {"causality": "C0"}}, None),
        ({"mine": {"causality": "-"}}, None),
    ],
)
def test_a_plugin_that_may_read_the_future_is_named(monkeypatch, matrix, said):
    monkeypatch.setattr("adaptive_bench.cli.run.stored_matrix", lambda name: matrix)
    monkeypatch.setattr("adaptive_bench.registry.names", lambda group: ["dense", "mine"])
    monkeypatch.setattr("adaptive_bench.registry.is_foreign", lambda group, name: name == "mine")
    monkeypatch.setattr("adaptive_bench.registry.origin", lambda group, name: "a plugin")
    notes = _unchecked(SimpleNamespace(methods=("dense", "mine")))
    assert notes == [] if said is None else len(notes) == 1 and said in notes[0]
