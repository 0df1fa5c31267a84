"""The launcher `slurm` submits job arrays whose elements call this command with one cell each.

The records say what is done. Slurm is asked only which jobs wait or run already, so that the same command given twice
submits nothing twice. Every job has a unique name, which is written to disk before the job is submitted: if the command
is killed in between, it finds the job by this name when it is given again.

An element that is asked to stop (by SIGUSR1 some time before its limit, or on preemption) saves its state and is queued
again. The last job of a run only writes the table.
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

_ANSWER_S = 60
_LARGEST_ARRAY = 1000  # Slurm's default MaxArraySize is 1001
_SETTLE_S = 15.0  # a call of `sbatch` may outlive a killed command, and its job appear only after that
_JOBS, _TABLE, _INTENT = "jobs.json", "table.json", "submitting.json"


class SlurmResources(Strict):
    """Resources of one cell; the keys of the YAML file for `--resources`.

    Attributes:
        partition, account, qos, time, memory: As `sbatch` takes them; `None` leaves the cluster's default.
        cpus: CPU cores.
        gpus: GPUs, as `sbatch --gpus-per-node` takes them: `1`, `a100:2`.
        processes: Processes that do one cell together, one for each GPU (`torchrun`).
        at_once: Largest number of elements that run at the same time.
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
    """Submit the work that is left and that neither waits nor runs in Slurm already.

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
    """Submit the job that writes the table once some arrays have ended."""
    name = _new_name(request)
    atomic.write_text(home / "table.sh", table_script(request, resources, home, name))
    return _submit(home, home / "table.sh", name, after)


def array_script(request: LaunchRequest, resources: SlurmResources, names: Sequence[str], home: Path, name: str) -> str:
    """Return the batch script of an array, whose element i does the cell `names[i]`."""
    limit = f"%{resources.at_once}" if resources.at_once else ""
    command = request.command("--jobs", "1", "--cell", processes=resources.processes)
    return f"""#!/bin/bash
{_options(resources, home, name)}
#SBATCH --array=0-{len(names) - 1}{limit}
#SBATCH --requeue
#SBATCH --signal=B:USR1@{resources.warn_s}
cells=({" ".join(names)})
element="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
{_setup(resources)}
warned= ended= child=
# USR1 warns of the time limit: this script requeues the element. TERM comes before KILL, on preemption or scancel: then
# Slurm decides whether it is requeued. Either way the command is asked to save its state.
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
if [ -n "$ended" ]; then  # wait for KILL: Slurm decides what happens next
    for ((second = 0; second < 300; second++)); do sleep 1; done
fi
# Not only on {STOPPED}: a command warned before it could listen ends by the signal, and torchrun has its own codes.
if [ -n "$warned" ] && [ "$code" != 0 ]; then
    scontrol requeue "$element"  # by its own name: SLURM_JOB_ID of the last element stands for the whole array
    sleep 60
fi
exit "$code"
"""


def table_script(request: LaunchRequest, resources: SlurmResources, home: Path, name: str) -> str:
    """Return the batch script of the job that only writes the table."""
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
    """Return a name that no other job has: the name of the run, for the reader, and a random part."""
    return f"ab-{request.folder.name}-{uuid4().hex[:12]}"


def _submit(home: Path, script: Path, name: str, after: Sequence[str], cells: Sequence[str] = ()) -> str:
    """Submit a script, and return the number of its job, which is also stored in `home`.

    Args:
        name: Name of the job in the script.
        after: Jobs that have to end before it starts.
        cells: Cells that the elements of an array do, in order; none for the job that writes the table.
    """
    intent = {"name": name, "after": list(after), "cells": list(cells), "since_s": time.time()}
    atomic.write_json(home / _INTENT, intent)
    options = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    job = _call("sbatch", "--parsable", *options, str(script)).strip().partition(";")[0]
    _keep(home, job, intent)
    return job


def _adopt(home: Path) -> None:
    """Find out whether a job was submitted, if an earlier command was killed, or got no answer, while submitting it."""
    intent = _read(home / _INTENT)
    if not intent:
        return
    while (job := _numbers().get(intent["name"])) is None and 0 <= time.time() - intent["since_s"] < _SETTLE_S:
        time.sleep(1)
    if job is None:  # it was never submitted, or has ended: then the records say what is left
        atomic.remove(home / _INTENT)
    else:
        _keep(home, job, intent)


def _keep(home: Path, job: str, intent: dict[str, Any]) -> None:
    """Store that a job was submitted."""
    if intent["cells"]:
        atomic.write_json(home / _JOBS, _read(home / _JOBS) | {job: intent["cells"]})
    else:
        atomic.write_json(home / _TABLE, {"job": job, "after": intent["after"]})
    atomic.remove(home / _INTENT)


def _read(file: Path) -> dict[str, Any]:
    """Return what was stored in a file before, if anything."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _queued() -> set[tuple[str, int]]:
    """Return job and index of every array element of this user that waits, runs or is ending."""
    return {(job, int(index)) for job, index, _ in _squeue() if index.isdigit()}


def _numbers() -> dict[str, str]:
    """Return the numbers of this user's jobs that wait, run or are ending, by their names."""
    return {name: job for job, _, name in _squeue()}


def _squeue() -> list[tuple[str, str, str]]:
    """Return job number, index and name of all array elements and jobs of this user in Slurm's queue."""
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
