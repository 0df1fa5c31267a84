import os
import subprocess
import sys
import warnings

from adaptive_bench.cli import options


def test_what_the_user_has_set_stays(monkeypatch):
    environment = {"TRANSFORMERS_VERBOSITY": "debug"}
    monkeypatch.setattr(options.os, "environ", environment)
    with warnings.catch_warnings(record=True) as shown:
        options.quiet()
        warnings.warn("chatter", UserWarning, stacklevel=1)
    assert environment["TRANSFORMERS_VERBOSITY"] == "debug"
    assert environment["TQDM_DISABLE"] == "1"
    assert shown == []


def test_processes_that_are_started_are_as_quiet(monkeypatch, tmp_path):
    monkeypatch.setattr(options.os, "environ", dict(os.environ))
    options.quiet()
    script = tmp_path / "spawn.py"
    script.write_text(LEVEL_IN_A_PROCESS)
    told = subprocess.run([sys.executable, script], env=options.os.environ, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["40", "40"]


LEVEL_IN_A_PROCESS = """
import logging

from adaptive_bench import spawn


def tell():
    print(logging.getLogger("torchao").level, logging.getLogger("torch.utils._pytree").level)


if __name__ == "__main__":
    process = spawn.context(runs_main=True).Process(target=tell)
    process.start()
    process.join()
"""
