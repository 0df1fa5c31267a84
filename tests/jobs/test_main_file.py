"""What becomes of a script that starts processes without `if __name__ == "__main__":`."""

import subprocess
import sys

from adaptive_bench import registry

SCRIPT = """
from adaptive_bench import spawn

print("the script")
spawn.check_main()
process = spawn.context(runs_main={runs_main}).Process(target=print, args=("work",), kwargs=dict(flush=True))
process.start()
process.join()
"""


def _said(tmp_path, runs_main: bool) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(runs_main=runs_main))
    return subprocess.run([sys.executable, "-u", script], capture_output=True, text=True, check=True)


def test_processes_do_not_run_the_script_again(tmp_path):
    done = _said(tmp_path, runs_main=False)
    assert (done.stdout, done.stderr) == ("the script\nwork\n", "")


def test_a_script_that_they_need_and_that_starts_them_is_refused_where_it_runs(tmp_path):
    done = _said(tmp_path, runs_main=True)
    assert done.stdout == 2 * "the script\n"
    assert "script.py" in done.stderr and 'if __name__ == "__main__":' in done.stderr


def test_the_script_is_needed_for_what_no_plugin_file_registered(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    plugin = tmp_path / "plugin.py"
    plugin.write_text("from adaptive_bench import register\nregister('tasks', 'of_a_file')(object())\n")
    registry.load_plugin(plugin)
    assert not registry.needs_main()
    registry.register("tasks", "of_this_process")(object())
    assert registry.needs_main()
