"""The commands that faults are tried on, a small run and a small study, each in a fork of one warm process.

What they leave is compared with what an undisturbed one left: files byte for byte (see `snapshot`), and of a study,
whose storage remembers interrupted trials, its results.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from shim import Fault, How, Operation, arm, parse, read_log
from snapshot import differences, leftovers, snapshot

LIMIT_S = 60.0  # of one command; what takes longer hangs
_STUDY_FILES = ("journal.log", "result.json", "study.lock")  # with times
RUN = {
    "methods": ["dense", "gateskip"],
    "tasks": ["nano_qa_ll"],
    "levels": [0.0, 0.1],
    "match_on": "net",
    "device": "cpu",
    "train": {"steps": 2, "batch_size": 2, "warmup_steps": 1, "max_length": 400, "checkpoint_every": 1},
    "evaluation": {"batch_size": 4, "limit": 6, "calibration_examples": 2, "grid": [0.0, 0.2]},
}


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        code: Exit code, negative for a signal, `None` if it had to be ended because it hangs.
        output: What it printed.
        operations: What it did to files of its output folder.
    """

    code: int | None
    seconds: float
    output: str
    operations: list[Operation]


@dataclass(frozen=True)
class Command:
    """A command line of adaptive-bench.

    Attributes:
        arguments: Without `--out`.
        prepare: Done in the process of the command first.
        reads: What is compared of an output folder, by name.
        remains: What a finished command leaves that it should not.
    """

    name: str
    arguments: tuple[str, ...]
    reads: Callable[[Path], Mapping[str, bytes]] = snapshot
    remains: Callable[[Path], list[str]] = leftovers
    prepare: Callable[[], object] | None = None

    def give(
        self,
        home: Path,
        out: Path | str,
        fault: Fault | None = None,
        *,
        counted: Path | None = None,
        before: Callable[[], object] | None = None,
        watch: Callable[[Operation], object] | None = None,
    ) -> Ending:
        """Give the command in a fork of this process, and wait for its end.

        Args:
            home: For the log of its operations and what it prints.
            out: Its `--out`.
            counted: The folder whose operations count; by default `out`.
            before: Done in the fork first.
            watch: Called before each operation and in the middle of each write, while the command waits.
        """
        home.mkdir(parents=True, exist_ok=True)
        start_s = time.monotonic()
        told, answered = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(answered[1])
            watched = (told[1], answered[0]) if watch else None
            self._be_it(home, out, fault or Fault(), Path(counted or out), before, watched)
        os.close(told[1])
        os.close(answered[0])
        with os.fdopen(told[0], encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:  # none unless it is watched
                if watch:
                    watch(parse(line))
                os.write(answered[1], b".")
        os.close(answered[1])
        code: int | None = None
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - start_s > LIMIT_S:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
            time.sleep(0.002)
        output = (home / "printed").read_text(encoding="utf-8", errors="replace")
        return Ending(code, time.monotonic() - start_s, output, read_log(home / "operations"))

    def _be_it(
        self, home: Path, out: Path | str, fault: Fault, counted: Path, before: Any, watched: tuple[int, int] | None
    ) -> None:
        code: Any = 70
        try:
            os.setsid()
            printed = os.open(home / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            log = os.open(home / "operations", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for standard in (1, 2):
                os.dup2(printed, standard)
            sys.argv = ["adaptive-bench", *self.arguments, "--out", str(out)]
            from adaptive_bench.cli import main

            if self.prepare is not None:
                self.prepare()
            if before is not None:
                before()
            arm(fault if watched is None else Fault(How.ASK), counted, *(watched or (log,)))
            main()
        except SystemExit as error:
            code = error.code or 0
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)


def run_command(home: Path) -> Command:
    """A run of two methods that prices, trains with checkpoints, calibrates and evaluates."""
    return Command("run", ("run", "--config", str(_config(home)), "--jobs", "1"))


def study_command(home: Path) -> Command:
    """A study of three trials whose best one is confirmed."""
    given = ["tune", "--config", str(_config(home)), "--methods", "gateskip", "--param", "sparsity_weight=log:1e-3:1"]
    given += ["--trials", "3", "--confirm", "1", "--study", "mine", "--jobs", "1"]
    return Command("study", tuple(given), study_results, study_leftovers)


def named(name: str, home: Path) -> Command:
    """A command by what it is called on the command line of `every_file_operation`."""
    return run_command(home) if name == "run" else study_command(home)


def _config(home: Path) -> Path:
    from adaptive_bench.testing.model_folder import write_model_folder

    model, file = home / "model", home / "small.yaml"
    if not model.is_dir():
        write_model_folder(model)
    file.write_text(yaml.safe_dump({**RUN, "model": str(model)}))
    return file


def study_results(out: Path) -> dict[str, bytes]:
    """Records by their path, and the trials that count in the order they were first begun."""
    found = {name: text for name, text in snapshot(out).items() if not name.endswith((*_STUDY_FILES, ".lock"))}
    for file in out.glob("studies/*/result.json"):
        result = json.loads(file.read_text(encoding="utf-8"))
        trials = [
            {key: value for key, value in trial.items() if key not in ("number", "seconds")}
            for group in ("trials", "confirmed")
            for trial in result[group]
        ]
        about = {key: result[key] for key in ("name", "definition", "best")}
        found[file.relative_to(out).as_posix()] = json.dumps({**about, "trials": trials}, indent=1).encode()
    return found


def study_leftovers(out: Path) -> list[str]:
    """As of a run, and locks of the journal."""
    locks = [path.relative_to(out).as_posix() for path in sorted(out.glob("studies/**/*lock*"))]
    return leftovers(out) + [name for name in locks if not name.endswith("/study.lock")]


def warm_up(command: Command, home: Path) -> None:
    """Import in this process what the command imports in a fork, so that further forks need not."""
    modules = home / "modules"

    def note() -> None:
        import atexit  # noqa: F401 - `os._exit` runs none of these
        import threading

        threading.Thread(target=_note_modules, args=(modules,), daemon=True).start()

    ending = command.give(home / "warm", home / "warm" / "out", before=note)
    if ending.code:
        raise SystemExit(f"{command.name} ended with {ending.code} although nothing went wrong:\n{ending.output}")
    for name in modules.read_text(encoding="utf-8").split():
        with suppress(Exception):
            importlib.import_module(name)
    import torch

    from adaptive_bench.config_file import load_config
    from adaptive_bench.evaluation.lookup import find_task, load_task
    from adaptive_bench.runs import plan, preflight

    torch.set_num_threads(1)
    config = load_config(str(_config(home)), {"out": home / "warm" / "none"})
    preflight(config)
    plan(config, splits=("validation",))
    for task in config.tasks:
        load_task(find_task(task), config.data_dir, config.evaluation.num_fewshot, "validation")
    shutil.rmtree(home / "warm")


def _note_modules(file: Path) -> None:
    while True:
        file.write_text("\n".join(sorted(sys.modules)), encoding="utf-8")
        time.sleep(0.2)


def look_at(out: Path) -> list[str]:
    """Tables that are on disk, read as readers do: what is wrong with them now."""
    found = []
    for file in out.rglob("*.json"):
        if any(part.startswith(".") for part in file.relative_to(out).parts):  # not there yet
            continue
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            found.append(f"{file.relative_to(out)} is there, but {error}")
    return found


__all__ = ["Command", "Ending", "differences", "look_at", "run_command", "study_command", "warm_up"]
