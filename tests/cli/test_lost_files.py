"""A file of a finished run that was deleted or damaged is named by every reader, with the command that repairs it."""

import json

import pytest

from adaptive_bench.store.keys import TABLES
from adaptive_bench.store.manifest import EvaluationEntry, Manifest, TrainingEntry
from adaptive_bench.store.runs import run_command, tables, write_run

pytestmark = pytest.mark.slow

ROW = {"method": "mod", "semantics": "bench", "task": "gsm8k", "metric": "exact_match,strict-match", "axis": "net"}
ROW |= {"level": 0.1, "score": 0.9, "low": None, "high": None, "seeds": 1, "status": "ok"}
ROW |= {"saved_tokens": 0.2, "saved_core": 0.15, "saved_net": 0.1}
CONFIG = {"methods": ["mod"], "tasks": ["gsm8k"], "model": "nano", "seeds": [1]}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two finished runs; the first was made with a plugin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    found = []
    for seed in (1, 2):
        folder = tmp_path / "runs" / "runs" / f"nano-mod-seed{seed}-{seed * 11111111}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(json.dumps(CONFIG | {"seeds": [seed]}))
        plugins = [str(tmp_path / "mine.py")] if seed == 1 else []
        (folder / "command.json").write_text(json.dumps({"plugins": plugins}))
        (folder / "table.json").write_text(json.dumps([ROW | {"seeds": seed}]))
        (folder / "answers.json").write_text('{"schema": 1, "sweeps": []}')
        (folder / "methods.json").write_text('{"schema": 1, "methods": {}}')
        write_run(folder, CONFIG | {"seeds": [seed], "state": "done", "tables": TABLES})
        found.append(folder)
    return found


REPAIRED = "To write it again: `adaptive-bench retry "


def test_a_table_that_is_gone_is_missed(command, folders):
    (folders[0] / "table.json").unlink()
    for arguments in ("leaderboard runs", "export", f"export {folders[0]}", f"leaderboard {folders[0]}"):
        result = command(arguments)
        assert result.exit_code == 1 and "table.json' cannot be read: [Errno 2]" in result.said
        assert REPAIRED in result.said
    assert [path.parent for path in tables(folders[0].parent)] == sorted(folders)
    said = command("leaderboard build runs").said
    assert f"{folders[0].name}/table.json is left out" in said and "cannot be read" in said


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("table.json", "leaderboard"),
        ("table.json", "export"),
        ("run.json", "leaderboard"),
        ("methods.json", "leaderboard submit --authors A --licence MIT"),
        ("manifest.json", "samples"),
    ],
)
def test_a_file_that_is_not_json_is_named_with_the_command_that_writes_it_again(command, folders, name, arguments):
    (folders[0] / name).write_text('{"half')
    result = command(arguments, folders[0])
    assert result.exit_code == 1 and f"{name}' cannot be read" in result.said
    assert f"{REPAIRED}{folders[0].parents[1]}/{folders[0].name}`" in result.said


def test_a_damaged_config_is_named_with_what_puts_it_back(command, folders):
    name, out = folders[0].name, folders[0].parents[1]
    trained = TrainingEntry("a", "mod", 1, None, True, None)
    Manifest(out, (trained,), (EvaluationEntry("a/eval/b", "mod", "gsm8k", "test", "m", (0.1,)),)).write(folders[0])
    (out / "records").mkdir()
    (folders[0] / "config.yaml").write_text("a: [\n")
    result = command("samples", name)
    assert result.exit_code == 1 and not result.stdout
    assert "config.yaml' is not valid YAML" in result.said
    assert "Put the run's own file back; or give `adaptive-bench run` the options" in result.said


def test_the_command_of_a_run_has_its_plugins_and_retry_loads_them(command, folders, monkeypatch):
    plugin = folders[0].parents[2] / "mine.py"
    assert run_command(folders[0], [plugin]).endswith(f"--plugin {plugin}")
    loaded = []
    monkeypatch.setattr("adaptive_bench.registry.load_plugins", loaded.append)
    monkeypatch.setattr("adaptive_bench.cli.run.execute", lambda config: None)
    (folders[0] / "config.yaml").write_text(json.dumps({"model": "nano", "methods": ["mod"], "tasks": ["nano_math"]}))
    assert command("retry", folders[0]).exit_code == 0 and loaded == [[plugin]]
