"""Every command that writes to a file of the user's treats it by one rule (see `adaptive_bench.output`)."""

import json

import pytest

from adaptive_bench.store.results import write_run
from adaptive_bench.testing import check_specs

WRITERS = {
    "export": ("export", "few", "-o"),
    "export as JSON": ("export", "few", "--format", "json", "-o"),
    "export as Parquet": ("export", "few", "--format", "parquet", "-o"),
    "check": ("check", "static_depth@bench", "--family", "llama", "-o"),
    "capabilities": ("check", "static_depth@bench", "--family", "llama", "--capabilities"),
    "ranks": ("leaderboard", "ranks", "few", "-o"),
}


@pytest.fixture(autouse=True)
def few(command, tmp_path):
    """A run of few rows, in the folder where commands are given."""
    about = {"semantics": "bench", "task": "nano_math", "metric": "exact_match,strict-match", "axis": "net"}
    about |= {"level": 0.15, "status": "ok", "seeds": 2}
    rows = [about | {"method": method, "score": 0.5, "low": 0.4, "high": 0.6} for method in ("dense", "mod")]
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "table.json").write_text(json.dumps(rows))
    write_run(tmp_path / "few", {})
    config = "methods: [dense, mod]\ntasks: [nano_math]\nmodel: nano\nseeds: [1, 2]\n"
    (tmp_path / "few" / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def report():
    """What the checks find."""
    return check_specs("static_depth@bench", ["llama"])


@pytest.fixture
def write(command, monkeypatch, report):
    """`write(writer, target)`: give a command that writes to a target."""
    monkeypatch.setattr("adaptive_bench.testing.check_specs", lambda *_, **__: report)
    monkeypatch.setattr("adaptive_bench.registry._registered", {})
    return lambda writer, target: command(*WRITERS[writer], str(target))


@pytest.mark.parametrize("writer", [name for name in WRITERS if "Parquet" not in name])
def test_a_dash_is_standard_output_with_nothing_else_on_it(write, writer, tmp_path):
    result = write(writer, "-")
    assert result.exit_code == 0 and not (tmp_path / "-").exists()
    if WRITERS[writer][0] == "check":
        assert json.loads(result.stdout) and "1 of 1 specs pass" in result.stderr
        return
    assert write(writer, "file").exit_code == 0
    assert result.stdout == (tmp_path / "file").read_text()


@pytest.mark.parametrize("arguments", [("leaderboard", "build", "few", "-o"), ("new-method", "mine", "-o")])
def test_a_folder_is_not_written_to_standard_output(command, tmp_path, arguments):
    result = command(*arguments, "-")
    assert result.exit_code == 2 and "standard output" in result.stderr and not (tmp_path / "-").exists()
