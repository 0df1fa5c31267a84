"""The launcher `slurm`: a job array whose elements call this command with one cell each.

The records say what is done; Slurm is asked only what waits or runs already, so that the same command given twice
submits nothing twice. Every job has a name of its own, which is written down before the job is submitted: a command
that was killed between the two finds the job by its name when it is given again.

An element that is asked to stop (SIGUSR1 some time before its limit or on preemption) keeps where it stands and is
queued again. The last job of a run only writes the table.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.launchers import STOPPED, LaunchRequest, LaunchResult
from adaptive_bench.recipe import Positive, Strict
from adaptive_bench.store import atomic
from adaptive_bench.store.lock import JOB_VARIABLE, RESTART_VARIABLE

_ANSWER_S = 60
_LARGEST_ARRAY = 1000  # Slurm's default MaxArraySize is 1001
_SETTLE_S = 15.0  # a call of `sbatch` may outlive the command that made it, and be answered after that was killed
_JOBS, _TABLE, _INTENT = "jobs.json", "table.json", "submitting.json"


class SlurmResources(Strict):
    """What one cell gets; a YAML file for `--resources`.

    Attributes:
        partition, account, qos, time, memory: As `sbatch` takes them; `None` leaves the cluster's default.
        cpus: CPU cores.
        gpus: GPUs, as `sbatch --gpus-per-node` takes them: `1`, `a100:2`.
        processes: That do one cell together, one for each GPU (`torchrun`).
        at_once: Elements that run at the same time, at most.
        warn_s: How long before its time limit an element is asked to stop.
        setup: Lines of shell before the command, for example `module load cuda`.
        options: Further options of `sbatch`, for example `--constraint=a100`.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: Positive = 1
    gpus: str | int | None = None
    processes: Positive = 1
    at_once: Positive | None = None
    warn_s: Positive = 120
    setup: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def launch(request: LaunchRequest) -> LaunchResult:
    """Submit what is left and neither waits nor runs.

    Raises:
        EnvironmentProblem: Slurm is not installed, does not answer, or refuses.
    """
    resources = request.settings(SlurmResources)
    home = request.folder / "slurm"
    _adopt(home)
    known: dict[str, list[str]] = _read(home / _JOBS)
    queued = _queued() if known else set()
    busy = [job for job, cells in known.items() if any((job, index) in queued for index in range(len(cells)))]
    under_way = {cell for job in busy for index, cell in enumerate(known[job]) if (job, index) in queued}
    left = [job for job in request.pending() if job.name not in under_way]
    if not left:
        if not under_way:
            return LaunchResult()
        said = f"{len(under_way)} cells wait or run in Slurm already; nothing was submitted"
        if set(busy) <= set(_read(home / _TABLE).get("after", [])):
            return LaunchResult(submitted=f"{said}.")
        return LaunchResult(
            submitted=f"{said} but job {_submit_table(request, resources, home, busy)}, which writes the table."
        )
    jobs: list[str] = []
    before: list[str] = []
    for depth, pending in groupby(left, key=attrgetter("depth")):
        stage = [job.name for job in pending]
        after = [*busy, *before] if depth else []
        before = []
        for start in range(0, len(stage), _LARGEST_ARRAY):
            names = stage[start : start + _LARGEST_ARRAY]
            file, name = home / f"array-{len(jobs)}.sh", _new_name(request)
            atomic.write_text(file, array_script(request, resources, names, home, name))
            before.append(_submit(home, file, name, after, cells=names))
            jobs.append(before[-1])
    last = _submit_table(request, resources, home, [*busy, *jobs])
    return LaunchResult(
        submitted=f"Submitted {len(left)} cells to Slurm: {', '.join(f'array {job}' for job in jobs)}; job {last} "
        f"writes the table after them. `squeue` and `adaptive-bench status` show how it goes, logs are in {home}. "
        "Running the command again submits what failed or was lost."
    )


def _submit_table(request: LaunchRequest, resources: SlurmResources, home: Path, after: Sequence[str]) -> str:
    """Submit the job that writes the table when some arrays have ended."""
    name = _new_name(request)
    atomic.write_text(home / "table.sh", table_script(request, resources, home, name))
    return _submit(home, home / "table.sh", name, after)


def array_script(request: LaunchRequest, resources: SlurmResources, names: Sequence[str], home: Path, name: str) -> str:
    """The batch script of an array; element i does the cell `names[i]`."""
    limit = f"%{resources.at_once}" if resources.at_once else ""
    command = request.command("--jobs", "1", "--cell", processes=resources.processes)
    return f"""#!/bin/bash
{_options(resources, home, name)}
#SBATCH --array=0-{len(names) - 1}{limit}
#SBATCH --requeue
#SBATCH --signal=B:USR1@{resources.warn_s}
cells=({" ".join(names)})
element="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
export {JOB_VARIABLE}="slurm $element"
export {RESTART_VARIABLE}="${{SLURM_RESTART_COUNT:-0}}"
{_setup(resources)}
warned= ended= child=
# Slurm warns with USR1: the element is to come back. TERM comes before KILL, on preemption or because somebody
# cancelled it: then Slurm knows whether it comes back. Either way the command is asked to keep where it stands.
trap 'interrupted=1 warned=1; kill -TERM "$child" 2>/dev/null' USR1
trap 'interrupted=1 ended=1; kill -TERM "$child" 2>/dev/null' TERM
{command} "${{cells[$SLURM_ARRAY_TASK_ID]}}" &
child=$!
code=
until [ -n "$code" ]; do
    interrupted=
    wait "$child"; code=$?
    [ -z "$interrupted" ] || code=
done
[ "$code" != 127 ] || code={STOPPED}
if [ -n "$ended" ]; then  # leave the word to Slurm
    for ((second = 0; second < 300; second++)); do sleep 1; done
fi
# Not only {STOPPED}: one that was warned before it could listen ends by the signal, and torchrun has codes of its own.
if [ -n "$warned" ] && [ "$code" != 0 ]; then
    scontrol requeue "$element"  # by its own name: SLURM_JOB_ID of the last element stands for the whole array
    sleep 60
fi
exit "$code"
"""


def table_script(request: LaunchRequest, resources: SlurmResources, home: Path, name: str) -> str:
    """The batch script of the job that only writes the table."""
    return f"""#!/bin/bash
{_options(resources.model_copy(update={"gpus": None}), home, name)}
#SBATCH --requeue
{_setup(resources)}
exec {request.command("--table-only")}
"""


def _options(resources: SlurmResources, home: Path, name: str) -> str:
    named = {
        "job-name": name,
        "chdir": shlex.quote(str(Path.cwd())),
        "output": shlex.quote(str(home.resolve() / "%A_%a.log")),
        "open-mode": "append",
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "time": resources.time,
        "mem": resources.memory,
        "cpus-per-task": resources.cpus,
        "gpus-per-node": resources.gpus,
    }
    lines = [f"--{name}={value}" for name, value in named.items() if value is not None]
    return "\n".join(f"#SBATCH {line}" for line in ("--ntasks=1", *lines, *resources.options))


def _setup(resources: SlurmResources) -> str:
    return "\n".join((f"export OMP_NUM_THREADS={max(1, resources.cpus // resources.processes)}", *resources.setup))


def _new_name(request: LaunchRequest) -> str:
    """A name that no other job has: of the run, for the reader, and of this submission."""
    return f"ab-{request.folder.name}-{uuid4().hex[:12]}"


def _submit(home: Path, script: Path, name: str, after: Sequence[str], cells: Sequence[str] = ()) -> str:
    """Submit a script; its job's number, which is also kept in `home`.

    Args:
        name: Of the job, as the script has it.
        after: Jobs that have to end before.
        cells: What the elements of an array do, in their order; none for the job that writes the table.
    """
    intent = {"name": name, "after": list(after), "cells": list(cells), "since_s": time.time()}
    atomic.write_json(home / _INTENT, intent)
    options = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    job = _call("sbatch", "--parsable", *options, str(script)).strip().partition(";")[0]
    _keep(home, job, intent)
    return job


def _adopt(home: Path) -> None:
    """Find out what became of a job whose submission this command did not live, or was not told, to see."""
    intent = _read(home / _INTENT)
    if not intent:
        return
    while (job := _numbers().get(intent["name"])) is None and 0 <= time.time() - intent["since_s"] < _SETTLE_S:
        time.sleep(1)
    if job is None:  # it never came to be, or has ended: then the records say what is left
        atomic.remove(home / _INTENT)
    else:
        _keep(home, job, intent)


def _keep(home: Path, job: str, intent: dict[str, Any]) -> None:
    """Note that a job was submitted."""
    if intent["cells"]:
        atomic.write_json(home / _JOBS, _read(home / _JOBS) | {job: intent["cells"]})
    else:
        atomic.write_json(home / _TABLE, {"job": job, "after": intent["after"]})
    atomic.remove(home / _INTENT)


def _read(file: Path) -> dict[str, Any]:
    """What was noted before, if anything."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _queued() -> set[tuple[str, int]]:
    """Job and index of every array element of this user that waits, runs or ends."""
    return {(job, int(index)) for job, index, _ in _squeue() if index.isdigit()}


def _numbers() -> dict[str, str]:
    """Numbers of this user's jobs that wait, run or end, by their names."""
    return {name: job for job, _, name in _squeue()}


def _squeue() -> list[tuple[str, str, str]]:
    """Number, index and name of all such jobs."""
    lines = _call("squeue", "--noheader", "--array", "--me", "--format=%F %K %j").split("\n")
    parts = ([*line.split(maxsplit=2), ""] for line in lines if len(line.split()) > 1)
    return [(job, index, name) for job, index, name, *_ in parts]


def _call(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except FileNotFoundError as error:
        raise EnvironmentProblem(
            f"The launcher slurm needs Slurm's commands, but there is no {words[0]!r}. Give the command on a machine "
            "of the cluster, or choose --launcher local."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"Slurm must answer within {_ANSWER_S} s, but {words[0]} did not. Try again once `sinfo` answers; nothing "
            "is submitted twice."
        ) from error
    if done.returncode:
        raise EnvironmentProblem(
            f"Slurm refused `{shlex.join(words)}`: {done.stderr.strip()}. Correct --resources, or try again once "
            "`sinfo` answers; nothing is submitted twice."
        )
    return done.stdout
