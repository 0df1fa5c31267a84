import os
import subprocess
import sys

import pytest

from adaptive_bench.cli import COMMANDS

HELPED = ("run", "list", "check", "samples", "diff", "export")


def test_help_is_shown_where_the_terminal_knows_ascii_alone():
    program = [sys.executable, "-m", "adaptive_bench", "run", "--help"]
    known = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(program, capture_output=True, env=known)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.isascii() and b"--methods" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in HELPED)])
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys\n"
        "from adaptive_bench.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'transformers', 'lm_eval', 'datasets', 'pandas', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_module_and_package_import_no_torch():
    program = (
        "import sys, adaptive_bench, adaptive_bench.config, adaptive_bench.progress; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_brackets_of_a_spec_survive_the_formatting(command):
    assert "gateskip[" in command("run", "--help").stdout


def test_the_program_says_of_each_command_what_its_own_help_begins_with():
    for name, source in COMMANDS.items():
        assert " ".join(source.load(name).help.split("\n\n")[0].split()) == source.summary, name


def test_help_of_the_program_imports_no_command():
    program = (
        "import sys\n"
        "from adaptive_bench.cli import COMMANDS, main\n"
        "sys.argv = ['adaptive-bench', '--help']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    homes = {one.place.partition(':')[0] for one in COMMANDS.values()} - {'program'}\n"
        "    assert not {f'adaptive_bench.cli.{home}' for home in homes} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)
