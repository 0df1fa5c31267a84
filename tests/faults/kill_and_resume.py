"""Kills runs with SIGKILL at random moments, gives the same run again, and compares what is on disk at the end.

    python tests/faults/kill_and_resume.py --kills 30    # JSON, a line a trial; exit code 1 unless all end well

Each trial has an output folder of its own, and some are killed twice. Killed is the run itself or one of its workers,
at a random moment or right before a random operation on a file (an audit hook counts them). At the end every file must
have the same bytes as after a run that was left alone (see `snapshot` for what is left aside: times and logs), and
nothing may be left behind: temporary files, `resume/` folders, records that say they are running.

One process imports the libraries and is forked for every run; worker processes are started as ever. A killed fork is
as dead as any process.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from armed import Operations, start_armed
from snapshot import differences, leftovers, snapshot

sys.path.append(str(Path(__file__).parents[1] / "support"))  # also where this is a script
from model_folder import write_model_folder

from adaptive_bench.progress import Line, Reporter, TaskStarted

_DRAWS = 6  # of a kill that comes in time
_LIMIT_S = 600.0  # of one run; what takes longer hangs


@dataclass(frozen=True)
class Kill:
    """Who is killed and when: at a moment, or before an operation on a file."""

    worker: bool = False  # one of the worker processes, not the run itself
    after_s: float | None = None  # the start
    at_operation: int | None = None  # on a file of the output folder, counted in each process from 1

    def __str__(self):
        when = f"{self.after_s:.2f} s" if self.after_s is not None else f"operation {self.at_operation}"
        return f"{'worker' if self.worker else 'run'} at {when}"


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    code: int  # negative for a signal
    seconds: float
    doing: str  # what it had begun last
    operations: int  # how often it touched a file of its output folder, where it came to its end
    work_s: float  # until its first training


class Notes(Reporter):
    """A reporter that keeps what was begun last in a file, for when the process is gone."""

    def __init__(self, folder):
        self.folder, self.start_s = folder, time.monotonic()

    def emit(self, event):
        if isinstance(event, TaskStarted):
            (self.folder / "doing").write_text(event.label)
            if event.label == "run":
                (self.folder / "work_s").write_text(str(time.monotonic() - self.start_s))
        if isinstance(event, Line):
            print(event.text, flush=True)


def one_run(config, jobs, kill, notes):
    """Give the run's command in a process of its own, and wait for its end."""
    notes.mkdir(parents=True, exist_ok=True)
    for name in ("doing", "operations", "work_s", "killed"):
        (notes / name).unlink(missing_ok=True)
    start_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _be_the_run(config, jobs, kill, notes)
    due_s = kill.after_s if kill is not None and not kill.worker else None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        elapsed_s = time.monotonic() - start_s
        if ended:
            break
        if (due_s is not None and elapsed_s >= due_s) or elapsed_s > _LIMIT_S:
            os.kill(pid, signal.SIGKILL)
            due_s = None
        time.sleep(0.003)
    return Ending(
        os.waitstatus_to_exitcode(status),
        elapsed_s,
        _read(notes / "doing", "nothing yet"),
        int(_read(notes / "operations", "0")),
        float(_read(notes / "work_s", "0")),
    )


def _be_the_run(config, jobs, kill, notes):
    code = 70
    try:
        os.setsid()
        log = os.open(notes / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from adaptive_bench.jobs import pool
        from adaptive_bench.runs import run

        at = None if kill is None else kill.at_operation
        own, workers = (None, at) if kill is not None and kill.worker else (at, None)
        operations = Operations(config.out, own, notes / "killed")
        sys.addaudithook(operations)
        if jobs > 1:
            pool.work = functools.partial(start_armed, config.out, workers, notes / "killed")
        if kill is not None and kill.worker and kill.after_s is not None:
            threading.Thread(target=_kill_a_worker, args=(kill.after_s, notes / "killed"), daemon=True).start()
        code = run(config, Notes(notes), jobs).exit_code
        (notes / "operations").write_text(str(operations.count))
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def _kill_a_worker(after_s, mark):
    time.sleep(after_s)
    while not (children := multiprocessing.active_children()):
        time.sleep(0.005)
    mark.touch()
    os.kill(random.choice(children).pid, signal.SIGKILL)


def _read(file, otherwise):
    return file.read_text() if file.is_file() and file.stat().st_size else otherwise


def make_config(out, home):
    """A run of two methods that trains, checkpoints, calibrates, evaluates and has to look for a level."""
    from adaptive_bench.config import RunConfig
    from adaptive_bench.recipe import EvalRecipe, TrainRecipe

    if not (home / "model").is_dir():
        write_model_folder(home / "model")
    return RunConfig(
        methods="dense,gateskip",
        tasks=("nano_qa_ll",),
        model=str(home / "model"),
        out=out,
        levels=(0.0, 0.1),
        match_on="net",
        device="cpu",
        train=TrainRecipe(steps=6, batch_size=2, warmup_steps=1, max_length=400, checkpoint_every=2),
        evaluation=EvalRecipe(batch_size=4, limit=3, calibration_examples=4),
    )


class Trials:
    """Runs that are killed and given again, against one that is not."""

    def __init__(self, home, seed):
        self.home, self.draw = home, random.Random(seed)
        self.whole: dict[int, Ending] = {}
        config = self._config("whole1")
        for jobs in (1, 2):
            ending = one_run(self._config(f"whole{jobs}"), jobs, None, home / f"whole{jobs}")
            if ending.code:
                raise SystemExit(f"The run that is left alone ended with {ending.code}, see {home}/whole{jobs}/log.txt")
            self.whole[jobs] = ending
        self.expected = snapshot(config.out)
        told = differences(self.expected, snapshot(home / "whole2" / "out")) + leftovers(config.out)
        if told:
            raise SystemExit("Two runs that are left alone differ or leave something:\n" + "\n".join(told))

    def trial(self, number):
        """Kill a run, once or twice, give it again, compare. One that ends before its time is no trial."""
        jobs = 1 + number % 2
        name, kills = f"trial{number}", []
        for again in range(2 if self.draw.random() < 0.34 else 1):
            for _ in range(_DRAWS):
                kill = self._kill(jobs, again=bool(again))
                ending = one_run(self._config(name), jobs, kill, self.home / name)
                killed = ending.code < 0 or (self.home / name / "killed").exists()
                if killed or again:
                    break
                shutil.rmtree(self.home / name)
            kills.append({"kill": str(kill), "killed": killed, "code": ending.code, "doing": ending.doing})
        last = one_run(self._config(name), jobs, None, self.home / name)
        out = self.home / name / "out"
        return {
            "trial": number,
            "jobs": jobs,
            "kills": kills,
            "code": last.code,
            "differences": differences(self.expected, snapshot(out)),
            "leftovers": leftovers(out),
        }

    def _config(self, name):
        return make_config(self.home / name / "out", self.home)

    def _kill(self, jobs, *, again):
        whole = self.whole[jobs]
        worker = jobs > 1 and self.draw.random() < 0.5
        if self.draw.random() < 0.5:
            after_s = self.draw.uniform(whole.work_s, whole.seconds) * (0.7 if again else 1.0)
            return Kill(worker, after_s=after_s)
        in_run = whole.operations if not worker else self.whole[1].operations // 2
        return Kill(worker, at_operation=self.draw.randint(1, max(1, in_run // (2 if again else 1))))


def main():
    """Run the trials; 0 if all ended well."""
    import torch

    from adaptive_bench.runs import preflight

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="Trials; some are killed twice.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="Where everything is kept; by default a folder that is deleted.")
    given = parser.parse_args()
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if any(os.environ.get(name) != value for name, value in quiet.items()):  # read by libraries that are loaded already
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | quiet)
    with tempfile.TemporaryDirectory() as temporary:
        home = (given.home or Path(temporary)).resolve()
        torch.set_num_threads(1)
        preflight(make_config(home / "warm" / "out", home))  # imports and compiles what every run needs
        trials, well = Trials(home, given.seed), 0
        for number in range(given.kills):
            found = trials.trial(number)
            well += not (found["code"] or found["differences"] or found["leftovers"])
            print(json.dumps(found), flush=True)
        print(f"{well} of {given.kills} equal and clean", file=sys.stderr)
    return 0 if well == given.kills else 1


if __name__ == "__main__":
    sys.exit(main())
