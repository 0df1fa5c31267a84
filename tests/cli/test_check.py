import json
import re

import pytest

from adaptive_bench.cli import check as check_command

PLUGIN = """
from adaptive_bench.method import EXECUTE_ALL
from adaptive_bench.method import DialSpec, Method
from adaptive_bench.registry import register


@register("methods", "lazy")
class Lazy(Method):
    \"\"\"Skips nothing.\"\"\"

    dial = DialSpec("share", 0.0, 1.0, 0.0)

    def dial_for(self, saved_tokens):
        return saved_tokens

    def decide(self, view):
        return EXECUTE_ALL
"""


@pytest.fixture
def check(command, monkeypatch, tmp_path):
    """Run `adaptive-bench check` beside a plugin file `lazy.py`."""
    monkeypatch.setattr("adaptive_bench.registry._registered", {})
    (tmp_path / "lazy.py").write_text(PLUGIN)
    return lambda *arguments: command("check", *arguments)


def test_a_sound_spec_passes(check, tmp_path):
    result = check("static_depth@bench", "-o", "all.json", "--capabilities", "capabilities.json")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.rstrip().splitlines()[-1].startswith("1 of 1 specs pass")
    assert json.loads((tmp_path / "all.json").read_text())["passed"] is True
    assert json.loads((tmp_path / "capabilities.json").read_text())["static_depth"]["causality"] == "C0"


def test_a_plugin_that_skips_nothing_fails(check, tmp_path):
    """Both semantics of the method are checked; the message tells what to do."""
    result = check("lazy", "--plugin", "lazy.py", "--family", "llama", "-o", "all.json")
    assert result.exit_code == 1
    assert "lazy fails effect on llama: A dial must move log-likelihoods and generations" in result.stdout
    assert "0 of 2 specs pass" in result.stdout
    about = json.loads((tmp_path / "all.json").read_text())
    failed = {(one["spec"], one["check"]) for one in about["results"] if one["status"] == "failed"}
    assert failed == {("lazy", "effect"), ("lazy@paper", "effect")}


def test_a_plugin_that_forgets_the_base_class_is_told_its_line(check, tmp_path):
    forgets = "    def __init__(self, *given):\n        self.gates = []\n        self.gates = Linear(2, 2)\n"
    plugin = PLUGIN.replace("    dial = ", f"{forgets}\n    dial = ", 1)
    (tmp_path / "lazy.py").write_text(f"from torch.nn import Linear\n{plugin}")
    result = check("lazy", "--plugin", "lazy.py", "--family", "llama", "--family", "gemma2")
    assert result.exit_code == 1
    assert "lazy.py, line 14, in __init__" in result.said and "before Module.__init__() call" in result.said
    assert result.said.count("in __init__") == 2  # of each semantics once, not for each family
    assert re.search(r"lazy fails \w+ on llama, gemma2: raised", result.said)


def test_a_file_that_cannot_be_written_is_said_before_anything_is_checked(check, monkeypatch):
    monkeypatch.setattr("adaptive_bench.testing.suite.check_specs", lambda *_, **__: pytest.fail("it was checked"))
    for option, place in (("-o", "/proc/x"), ("-o", "lazy.py/x"), ("-o", "."), ("--capabilities", "/proc/x")):
        result = check("static_depth@bench", option, place)
        assert result.exit_code in (1, 2) and place in result.stderr


@pytest.mark.parametrize("arguments", ["", "gateskip --all", "gateskp", "gateskip[shape"])
def test_what_to_check_has_to_be_clear(check, arguments):
    assert check(*arguments.split()).exit_code == 2


def test_doctor_finds_a_sound_machine_in_order_and_names_what_is_missing_with_the_next_step(command, monkeypatch):
    result = command("doctor")
    assert result.exit_code == 0
    assert all(what in result.stdout for what in ("torch", "devices", "hub", "cache"))
    monkeypatch.setattr(check_command, "_PACKAGES", ("torch", "not-there-at-all"))
    result = command("doctor")
    assert result.exit_code == 1 and "in order: not-there-at-all." in result.said
    assert "not installed: pip install" in result.stdout
