"""The launcher `slurm` submits job arrays whose elements call this command with one cell each.

The records say what is done. Slurm is asked only which jobs wait or run already, so that the same command given twice
submits nothing twice. Every job has a unique name, under which its cells are written to disk before it is submitted: a
command that was killed in between knows the job by this name when it is given again. Where it is given before Slurm
knows the job, two jobs may wait for the same cells; the locks of records keep them apart.

An element that is asked to stop (by SIGUSR1 some time before its limit, or on preemption) saves its state and is queued
again. The last job of a run only writes the table.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from uuid import uuid4

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.jobs.launchers import STOPPED, LaunchRequest, LaunchResult
from adaptive_bench.recipe import Positive, Strict
from adaptive_bench.store import atomic

_ANSWER_S = 60  # for an answer of one of Slurm's commands
_LARGEST_ARRAY = 1000  # Slurm's default MaxArraySize is 1001


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
    resources, home = request.settings(SlurmResources), request.folder / "slurm"
    busy, tables = _queued(home)
    under_way = {cell for cells in busy.values() for cell in cells}
    left = [job for job in request.pending() if job.name not in under_way]
    if not left:
        if not under_way:
            return LaunchResult()
        said = f"{len(under_way)} cells wait or run in Slurm already; nothing was submitted"
        # A table job that waits for all of them is queued already.
        if any(set(busy) <= after for after in tables):
            return LaunchResult(submitted=f"{said}.")
        table = _submit_table(request, resources, home, list(busy))
        return LaunchResult(submitted=f"{said} but job {table}, which writes the table.")
    arrays, before = list(busy), list[str]()
    # They come by rising depth. What builds on others waits for the stage before and for all arrays already queued.
    for depth, pending in groupby(left, key=attrgetter("depth")):
        stage, after = [job.name for job in pending], [*busy, *before] if depth else []
        before = []
        for start in range(0, len(stage), _LARGEST_ARRAY):
            cells, name = stage[start : start + _LARGEST_ARRAY], _new_name(request)
            before.append(_submit(home, name, array_script(request, resources, cells, home, name), after, cells))
        arrays += before
    table = _submit_table(request, resources, home, arrays)
    return LaunchResult(
        submitted=f"Submitted {len(left)} cells to Slurm; job {table} writes the table after them. `squeue` and "
        f"`adaptive-bench status` show how it goes, logs are in {home}. Running the command again submits what failed "
        "or was lost."
    )


def _submit_table(request: LaunchRequest, resources: SlurmResources, home: Path, after: Sequence[str]) -> str:
    """Submit the job that writes the table once some arrays have ended."""
    name = _new_name(request)
    return _submit(home, name, table_script(request, resources, home, name), after)


def array_script(request: LaunchRequest, resources: SlurmResources, names: Sequence[str], home: Path, name: str) -> str:
    """Return the batch script of an array, whose element i does the cell `names[i]`."""
    limit = f"%{resources.at_once}" if resources.at_once else ""
    command = request.command("--cell", processes=resources.processes)
    setup = "\n".join((f"export OMP_NUM_THREADS={max(1, resources.cpus // resources.processes)}", *resources.setup))
    return f"""#!/bin/bash
{_options(resources, home, name)}
#SBATCH --array=0-{len(names) - 1}{limit}
#SBATCH --requeue
#SBATCH --signal=B:USR1@{resources.warn_s}
cells=({" ".join(names)})
element="${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
{setup}
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


def _submit(home: Path, name: str, script: str, after: Sequence[str], cells: Sequence[str] = ()) -> str:
    """Submit a script as a job of this name, to start once those in `after` have ended, and return the job's number.

    The elements of an array do one of the `cells` each, in order; the job that writes the table has none.
    """
    atomic.write_text(home / f"{name}.sh", script)
    # Before `sbatch`, so that the cells of every queued job are known.
    atomic.write_json(home / f"{name}.json", {"cells": list(cells), "after": list(after)})
    options = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    return _call("sbatch", "--parsable", *options, str(home / f"{name}.sh")).strip().partition(";")[0]


def _queued(home: Path) -> tuple[dict[str, list[str]], list[set[str]]]:
    """Return what was submitted from a folder and still waits, runs or is ending: the cells of each array, by its
    number, and of each job that writes the table the arrays that it waits for.
    """
    arrays: dict[str, list[str]] = {}
    tables = []
    # Job number, index in the array (no number for a job that is no array), and job name.
    for line in _call("squeue", "--noheader", "--array", "--me", "--format=%F %K %j").splitlines():
        job, index, name = [*line.split(maxsplit=2), "", "", ""][:3]
        if not name or not (file := home / f"{name}.json").is_file():  # another job of this user
            continue
        about = json.loads(file.read_text(encoding="utf-8"))
        if index.isdigit():
            arrays.setdefault(job, []).append(about["cells"][int(index)])
        else:
            tables.append(set(about["after"]))
    return arrays, tables


def _call(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=True).stdout
    except FileNotFoundError as error:
        raise EnvironmentProblem(
            f"The launcher slurm needs Slurm's commands, but there is no {words[0]!r}. Give the command on a machine "
            "of the cluster, or choose --launcher local."
        ) from error
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise EnvironmentProblem(
            f"Slurm refused `{shlex.join(words)}`: {said}. Correct --resources, or try again once `sinfo` answers."
        ) from error
