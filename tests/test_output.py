"""Files that the user names: whole or not at all where that can be, and never in the place of something else."""

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adaptive_bench import output
from adaptive_bench.errors import EnvironmentProblem, UsageError

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


def test_a_pipe_is_written_into(tmp_path):
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


def test_a_device_is_written_into(tmp_path):
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


def test_a_closed_standard_output_is_said(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(EnvironmentProblem, match=r"which is closed\. Name a file with -o"):
        output.write_text(output.STDOUT, "text")


def test_the_name_of_a_file_may_be_a_dash(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    output.write_text(output.file("./-"), TEXT)
    assert (tmp_path / "-").read_text() == TEXT and capsys.readouterr().out == ""
    output.write_text(output.file("-"), TEXT)
    assert capsys.readouterr().out == TEXT
    with pytest.raises(UsageError, match="Name a folder"):
        output.folder("-")


def test_what_can_hold_no_file_is_refused_and_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    with listener:
        with pytest.raises(UsageError, match="is a folder"):
            output.write_text(tmp_path / "folder", TEXT)
        with pytest.raises(UsageError, match="no file, pipe or terminal"):
            output.write_text(tmp_path / "socket", TEXT)
    with pytest.raises(EnvironmentProblem, match="symbolic links"):
        output.write_text(tmp_path / "circle", TEXT)
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="name another file"):
        output.write_text(tmp_path / "file" / "below", TEXT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["circle", "file", "folder", "socket"]


def test_a_reader_that_goes_is_said(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.open("rb", buffering=0).close(), daemon=True).start()
    with pytest.raises(EnvironmentProblem, match=r"reader of .* has gone"):
        output.write_bytes(pipe, b"x" * 10_000_000)
    assert pipe.is_fifo()


def test_a_new_folder_comes_about_where_a_link_leads(tmp_path):
    (tmp_path / "link").symlink_to("target")
    assert output.new_folder(str(tmp_path / "link")) == tmp_path / "target"
    assert output.new_folder("plain") == Path("plain")
