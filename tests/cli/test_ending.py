"""How the program ends, by an error, by Ctrl-C or with nobody reading; what it says of itself, and in what form."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench import __version__, progress
from adaptive_bench.cli import ctrl_c_answered, reported
from adaptive_bench.cli.terminal_text import fitting, listed, pasteable, wrapped
from adaptive_bench.errors import EnvironmentProblem, Interrupted, UsageError

PROGRAM = f"{shlex.quote(sys.executable)} -m adaptive_bench"
PRESS = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
LINE = "Interrupted: Stopped. Finished work is kept; give the same command again.\n"


@pytest.fixture(autouse=True)
def _as_before():
    """A process that was interrupted ignores further ones while it ends; this one goes on."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (UsageError("No such folder: /data/" + "very-long-name-" * 12), 2, "/data/" + "very-long-name-" * 12),
        (EnvironmentProblem("x"), 1, "Environment problem: x"),
        (Interrupted("x"), 130, "x"),
        (OSError("x"), 1, "x"),
        (GeneratorExit("x"), 1, "x"),
        (ZeroDivisionError("by zero"), 1, "Defect of adaptive-bench: ZeroDivisionError: by zero"),
    ],
)
def test_errors_become_one_paragraph_and_an_exit_code(capsys, error, exit_code, said):
    for debug in (False, True):
        with pytest.raises(SystemExit) as end, reported(debug=debug):
            raise error
        captured = capsys.readouterr()
        assert (end.value.code, captured.out) == (exit_code, "") and said in captured.err
        before, traceback, _ = captured.err.partition("Traceback")
        assert bool(traceback) == debug and not (debug and before)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["list configs", "--help", "list configs --json"])
def test_a_list_that_nobody_reads_to_the_end_ends_quietly(arguments):
    done = subprocess.run(["bash", "-c", f"{PROGRAM} {arguments} | true"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_run_is_done_though_nobody_reads(tmp_path):
    command = f"{PROGRAM} run --config smoke --methods dense --out {shlex.quote(str(tmp_path / 'out'))}"
    script = f"{command} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(list((tmp_path / "out" / "runs").glob("*/table.json"))) == 1


def test_ctrl_c_in_a_command_is_one_line_and_exit_code_130(command, monkeypatch):
    monkeypatch.setattr(
        "adaptive_bench.cli.check._findings", lambda *given: os.kill(os.getpid(), signal.SIGINT) or iter(())
    )
    done = command("doctor")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", LINE)


@pytest.mark.parametrize("hidden_as", [ImportError("no numpy"), SystemError("returned a result with an exception set")])
def test_an_error_after_ctrl_c_that_code_below_caught_is_not_told_as_its_own(capsys, hidden_as):
    with pytest.raises(SystemExit) as end, ctrl_c_answered(), reported(debug=False):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise hidden_as
    assert (end.value.code, capsys.readouterr().err) == (130, LINE)


@pytest.mark.slow
def test_a_module_that_hides_ctrl_c_while_it_is_loaded_does_not_hide_it_from_the_user(tmp_path):
    (tmp_path / "hides.py").write_text(
        f"try:\n    {PRESS}\nexcept BaseException:\n    raise ImportError('numpy is missing', name='numpy')\n"
    )
    program = "from adaptive_bench.cli import ctrl_c_answered\nwith ctrl_c_answered():\n    import hides"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", LINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "code", "out", "last"),
    [
        # Before the command line can answer it; in a program that imports the package; after all is said.
        (f"import sys; sys.argv[0] = 'bin/adaptive-bench'; import adaptive_bench; {PRESS}", -2, "", ""),
        (f"import adaptive_bench; {PRESS}", -2, "", "KeyboardInterrupt"),
        (
            "import atexit, sys; from adaptive_bench.cli import main\n"
            f"@atexit.register\ndef late():\n    {PRESS}\n"
            "sys.argv = ['adaptive-bench', '--version']; main()",
            *(0, f"adaptive-bench {__version__}\n", ""),
        ),
    ],
)
def test_ctrl_c_around_a_command(program, code, out, last):
    heard = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {program}"
    done = subprocess.run([sys.executable, "-c", heard], capture_output=True, text=True)  # whoever tests may ignore it
    assert (done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]) == (code, out, last)


@pytest.mark.parametrize(
    ("started", "on_path", "printed"),
    [
        ("/elsewhere/bin/adaptive-bench", True, "adaptive-bench"),
        ("bin/adaptive-bench", False, "bin/adaptive-bench"),
        ("/site/adaptive_bench/__main__.py", False, f"{sys.executable} -m adaptive_bench"),
    ],
)
def test_commands_that_are_printed_can_be_given_as_they_stand(monkeypatch, tmp_path, started, on_path, printed):
    script = tmp_path / "bin" / "adaptive-bench"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(script.parent) if on_path else "/nowhere")
    monkeypatch.setattr(sys, "argv", [started])
    assert pasteable("adaptive-bench run") == f"{printed} run"


LEVELS = """
import logging
import multiprocessing

import adaptive_bench


def tell():
    print(logging.getLogger("torchao").level, logging.getLogger("torch.utils._pytree").level)


if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=tell)
    process.start()
    process.join()
"""


def test_libraries_are_quiet_in_every_process_but_for_what_the_user_has_set(monkeypatch, tmp_path):
    monkeypatch.setattr(progress.os, "environ", dict(os.environ) | {"TRANSFORMERS_VERBOSITY": "debug"})
    with warnings.catch_warnings(record=True) as shown:
        progress.quiet()
        warnings.warn("chatter", UserWarning, stacklevel=1)
    assert (progress.os.environ["TRANSFORMERS_VERBOSITY"], progress.os.environ["TQDM_DISABLE"]) == ("debug", "1")
    assert shown == []
    script = tmp_path / "spawn.py"
    script.write_text(LEVELS)
    told = subprocess.run([sys.executable, script], env=progress.os.environ, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["40", "40"]


# How tables and prose are fitted to a terminal.
PROSE = "Skips tokens by the value of a gate that is trained with the model and closes early"
ROW = {"name": "gateskip", "what": PROSE, "parameters": "shape, weight, budget, stride, kv, threshold", "n": "1"}
WORDS = st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=30).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(50, 200))
def test_a_table_keeps_every_word_whole_and_to_the_width_where_it_can(cells, width):
    rows = [dict(zip(("method", "decision MACs per token", "n"), one, strict=True)) for one in cells]
    text = fitting(rows, width)
    assert {word for row in cells for cell in row for word in cell.split()} <= set(text.split())
    if width >= 3 * 12 + 2 * 2:  # the longest words, side by side
        assert max(map(len, text.splitlines())) <= width
    for row in rows:
        row["method"] = row["method"].replace(" ", "")[:width]  # a name
    paragraphs = listed(rows, width)
    assert max(map(len, paragraphs.splitlines())) <= width
    assert {word for row in rows for cell in row.values() for word in cell.split()} <= set(paragraphs.split())


def test_prose_is_wrapped_where_it_has_to_be_and_a_path_never():
    assert PROSE in fitting([ROW], 300) and PROSE not in fitting([ROW], 80)
    path = "/somewhere/" + "deep/" * 30 + "mine.py"
    assert path in fitting([{"name": "a", "from": path, "what": PROSE}], 80)
    assert fitting([], 80) == "" and "nothing" not in fitting([ROW | {"nothing": ""}], 80)
    assert "---" in listed([ROW, ROW], 140) and "---" not in listed([ROW, ROW], 60)


def test_commands_are_not_broken():
    text = wrapped("Please do give `adaptive-bench list runs --json` and look at what it says of them.", 40)
    assert "`adaptive-bench list runs --json`" in text.splitlines()[1]
    assert max(map(len, text.splitlines())) <= 40
