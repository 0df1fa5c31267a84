"""A plugin whose thread outlives the command."""

import signal
import threading

import pytest

from adaptive_bench import faults
from adaptive_bench.cli import left_threads


@pytest.mark.parametrize(("daemon", "told"), [(False, True), (True, False)])
def test_a_thread_that_the_process_would_wait_for_is_named(daemon, told, monkeypatch, tmp_path, capsys):
    plugin, began, end = tmp_path / "mine.py", threading.Event(), threading.Event()
    code = "def work():\n    began.set()\n    end.wait()\n"
    names = {"began": began, "end": end}
    exec(compile(code, str(plugin), "exec"), names)
    monkeypatch.setattr(faults, "_watched", {str(plugin)})
    monkeypatch.setattr(left_threads, "_GRACE_S", 0.05)
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=names["work"], daemon=daemon)
    thread.start()
    try:
        began.wait()
        left_threads.tell_of_left_threads()
        assert (signal.getsignal(signal.SIGINT) is signal.SIG_DFL) == told
    finally:
        end.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    said = " ".join(capsys.readouterr().err.split())
    assert ("mine.py, line 3, in work" in said and "daemon=True" in said) == told
    left_threads.tell_of_left_threads()
    assert capsys.readouterr().err == ""
