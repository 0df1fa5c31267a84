"""Every command that writes to a file of the user's treats it by one rule (see `adaptive_bench.output`)."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adaptive_bench import check_specs, output
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store.runs import write_run

WRITERS = {
    "export": ("export", "few", "-o"),
    "check": ("check", "static_depth@bench", "--family", "llama", "-o"),
    "capabilities": ("check", "static_depth@bench", "--family", "llama", "--capabilities"),
    "ranks": ("leaderboard", "ranks", "few", "-o"),
}


@pytest.fixture
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
def write(command, few, monkeypatch, report):
    """`write(writer, target)`: give a command that writes to a target."""
    monkeypatch.setattr("adaptive_bench.testing.suite.check_specs", lambda *_, **__: report)
    monkeypatch.setattr("adaptive_bench.registry._registered", {})
    return lambda writer, target: command(*WRITERS[writer], str(target))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_dash_is_standard_output_with_nothing_else_on_it(write, writer, tmp_path):
    result = write(writer, "-")
    assert result.exit_code == 0 and not (tmp_path / "-").exists()
    if WRITERS[writer][0] == "check":
        assert json.loads(result.stdout) and "1 of 1 specs pass" in result.stderr
        return
    assert write(writer, "file").exit_code == 0
    assert result.stdout == (tmp_path / "file").read_text()


@pytest.mark.parametrize("arguments", [("leaderboard", "build", "few", "-o"), ("new-method", "mine", "-o")])
def test_a_folder_is_not_written_to_standard_output(command, few, tmp_path, arguments):
    result = command(*arguments, "-")
    assert result.exit_code == 2 and "standard output" in result.stderr and not (tmp_path / "-").exists()


# The rule: whole or not at all where that can be, and never in the place of something else.
TEXT = "method,score\ngateskip,0.5\n"
WRITE = """
import sys
from pathlib import Path
from adaptive_bench import output
output.write_text(Path(sys.argv[1]), "text")
"""


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path):
    file = tmp_path / "new" / "results.csv"
    output.write_text(file, "before")
    file.chmod(0o640)
    before = file.open()
    output.write_text(file, TEXT)
    assert file.read_text() == TEXT and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert before.read() == "before"  # who reads it meanwhile reads one thing
    assert [path.name for path in file.parent.iterdir()] == ["results.csv"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    target, between, link = tmp_path / "below" / "target.csv", tmp_path / "between", tmp_path / "link"
    target.parent.mkdir()
    between.symlink_to("below/target.csv")
    link.symlink_to(between)
    for text in ("before", TEXT):
        output.write_text(link, text)
        assert link.is_symlink() and between.is_symlink() and target.read_text() == text
    assert not target.is_symlink() and [path.name for path in target.parent.iterdir()] == ["target.csv"]


def test_a_pipe_and_a_device_are_written_into(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link"):
        reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
        reader.start()
        output.write_text(tmp_path / name, TEXT)
        assert pipe.is_fifo(), "a file took its place"
        reader.join(10)
    assert found == [TEXT, TEXT]
    master, terminal = os.openpty()
    output.write_text(Path(os.ttyname(terminal)), "to a terminal\n")
    assert os.read(master, 100).split() == [b"to", b"a", b"terminal"]
    assert stat.S_ISCHR(Path(os.ttyname(terminal)).lstat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_is_written_where_it_stands(tmp_path, name):
    """In the middle of a file as in a pipe: what is there before and after stays."""
    if name != "-" and not Path(name).exists():
        pytest.skip(f"no {name} here")
    script = f'echo before; {sys.executable} -c "$1" {name}; echo after'
    with (tmp_path / "file").open("w") as stream:
        subprocess.run(["bash", "-c", script, "bash", WRITE], cwd=tmp_path, stdout=stream, check=True)
    piped = subprocess.run(["bash", "-c", script, "bash", WRITE], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "file").read_text() == piped.stdout.decode() == "before\ntextafter\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_can_hold_no_file_is_refused_and_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="is a folder"):
        output.write_text(tmp_path / "folder", TEXT)
    with pytest.raises(EnvironmentProblem, match="symbolic links"):
        output.write_text(tmp_path / "circle", TEXT)
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=r"Correct the path or .* -o for other output"):
        output.write_text(tmp_path / "file" / "below", TEXT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["circle", "file", "folder"]
