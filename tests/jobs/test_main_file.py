"""What becomes of a script that starts processes without `if __name__ == "__main__":`."""

import subprocess
import sys

import pytest

from adaptive_bench import fork_server, registry
from adaptive_bench.errors import UsageError

SCRIPT = """
from adaptive_bench import fork_server
from adaptive_bench.errors import UsageError

print("the script")
fork_server._PRELOADED[1:] = []  # what comes later takes seconds
fork_server.check_main()
for start in (fork_server.context, fork_server.spawning):
    process = start(runs_main={runs_main}).Process(target=print, args=("work",), kwargs=dict(flush=True))
    process.start()
    process.join()
    try:
        fork_server.check_guarded(process)
    except UsageError as error:
        print(error)
"""


def _said(tmp_path, runs_main: bool) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(runs_main=runs_main))
    done = subprocess.run([sys.executable, "-u", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_processes_do_not_run_the_script_again(tmp_path):
    assert _said(tmp_path, runs_main=False) == ["the script", "work", "work"]


def test_a_script_that_they_need_and_that_starts_them_is_refused_where_it_runs(tmp_path):
    said = _said(tmp_path, runs_main=True)
    assert said.count("the script") == 3 and "work" not in said
    refusals = [line for line in said if line != "the script"]
    assert len(refusals) == 2
    assert all("script.py" in line and 'if __name__ == "__main__":' in line for line in refusals)


def test_a_process_of_somebody_else_says_so_itself(monkeypatch):
    monkeypatch.setattr(fork_server.multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(UsageError, match="Put the call under if __name__"):
        fork_server.check_main()


def test_the_script_is_needed_for_what_no_plugin_file_registered(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "_registered", {})
    plugin = tmp_path / "plugin.py"
    plugin.write_text("from adaptive_bench import register\nregister('tasks', 'of_a_file')(object())\n")
    registry.load_plugin(plugin)
    assert not registry.needs_main()
    registry.register("tasks", "of_this_process")(object())
    assert registry.needs_main()
