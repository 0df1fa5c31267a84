"""Ctrl-C in a command, at whatever it is."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from adaptive_bench import __version__
from adaptive_bench.cli.failures import ctrl_c_answered, reported

pytestmark = pytest.mark.slow

_PRESS = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
_LINE = "Interrupted: Stopped. Finished work is kept; give the same command again.\n"


def test_a_module_that_hides_ctrl_c_while_it_is_loaded_does_not_hide_it_from_the_user(tmp_path):
    (tmp_path / "hides.py").write_text(
        f"try:\n    {_PRESS}\nexcept BaseException:\n    raise ImportError('numpy is missing', name='numpy')\n"
    )
    program = "from adaptive_bench.cli.failures import ctrl_c_answered\nwith ctrl_c_answered():\n    import hides"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", _LINE)


@pytest.fixture(autouse=True)
def _as_before():
    """A process that was interrupted ignores further ones while it ends; this one goes on."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_command_is_one_line_and_exit_code_130(command, monkeypatch):
    monkeypatch.setattr(
        "adaptive_bench.cli.check._findings", lambda *given: os.kill(os.getpid(), signal.SIGINT) or iter(())
    )
    done = command("doctor")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", _LINE)


def _ended(program):
    heard = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {program}"
    done = subprocess.run([sys.executable, "-c", heard], capture_output=True, text=True)  # whoever tests may ignore it
    return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]


def test_ctrl_c_before_the_command_line_can_answer_ends_without_a_traceback():
    assert _ended(f"import sys; sys.argv[0] = 'bin/adaptive-bench'; import adaptive_bench; {_PRESS}") == (-2, "", "")


def test_ctrl_c_in_a_program_that_imports_the_package_stays_what_it_is():
    assert _ended(f"import adaptive_bench; {_PRESS}")[2] == "KeyboardInterrupt"


def test_ctrl_c_after_a_command_has_said_all_does_not_replace_its_exit_code():
    program = (
        "import atexit, sys; from adaptive_bench.cli import main\n"
        f"@atexit.register\ndef late():\n    {_PRESS}\n"
        "sys.argv = ['adaptive-bench', '--version']; main()"
    )
    assert _ended(program) == (0, f"adaptive-bench {__version__}\n", "")


@pytest.mark.parametrize("hidden_as", [ImportError("no numpy"), SystemError("returned a result with an exception set")])
def test_an_error_after_ctrl_c_that_code_below_caught_is_not_told_as_its_own(capsys, hidden_as):
    with pytest.raises(SystemExit) as end, ctrl_c_answered(), reported(debug=False):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise hidden_as
    assert end.value.code == 130
    assert capsys.readouterr().err == _LINE
