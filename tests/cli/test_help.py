import subprocess
import sys

import pytest

OPTIONS = (
    *("--methods", "--tasks", "--config", "--model", "--data-dir", "--seeds", "--levels", "--axis", "--limit"),
    *("--num-fewshot", "--train-steps", "--train-on", "--out", "--device", "--plugin", "--dry-run", "--debug"),
)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["list", "--help"], ["check", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys\n"
        "from adaptive_bench.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'transformers', 'lm_eval', 'datasets', 'pandas'} & set(sys.modules)\n"
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


def test_every_option_of_run_is_documented(command):
    text = command("run", "--help").stdout
    for option in OPTIONS:
        assert option in text


def test_brackets_of_a_spec_survive_the_formatting(command):
    assert "gateskip[" in command("run", "--help").stdout
