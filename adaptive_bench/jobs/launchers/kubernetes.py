"""The launcher `kubernetes`: writes the manifests of an Indexed Job whose indices do one cell each, and of a Job that
writes the table.

The output folder must be on a volume that all pods share, under the same path as here. Kubernetes knows no order of
Jobs, nor of the indices of one: a cell that starts from another one's training waits for it, or trains it if nobody
is, and the Job that writes the table waits for the records of the others.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.launchers.kubernetes_names import as_label_value, job_prefix
from adaptive_bench.jobs.launchers.kubernetes_resources import PodResources
from adaptive_bench.jobs.launchers.request import STOPPED, LaunchRequest, LaunchResult
from adaptive_bench.store import atomic
from adaptive_bench.store.lock import JOB_VARIABLE

_LONGEST_SCRIPT = 128 * 1024 - 1  # bytes of one argument on Linux
_RETRIES_OF_TABLE = 3


def launch(request: LaunchRequest) -> LaunchResult:
    """Write the manifests of what is left.

    Raises:
        UsageError: There are no resources, the output folder is not on the shared volume, or there are too many cells.
    """
    if request.resources is None:
        raise UsageError(
            "The launcher kubernetes needs to know image, claim and mount. Write them into a YAML file and name it "
            "with --resources; docs/cluster.md shows one."
        )
    resources = request.settings(PodResources)
    if not request.folder.resolve().is_relative_to(resources.mount):
        raise UsageError(
            f"The output folder lies on the volume that all pods share, but {str(request.folder.resolve())!r} is not "
            f"under mount {resources.mount!r}. Choose another --out or correct the mount."
        )
    names = [job.name for job in request.pending()]
    if not names:
        return LaunchResult()
    job = _write(request, "job.yaml", manifest(request, resources, names))
    table = _write(request, "table.yaml", table_manifest(request, resources))
    return LaunchResult(
        submitted=f"Wrote a job of {len(names)} cells and one that writes the table after them. Start both with "
        f"`kubectl create -f {job} -f {table}`; each call makes a new job of what was left now. Running "
        f"the command again writes a job of what is left, and `{request.command('--table-only')}` the table of what "
        f"is there."
    )


def manifest(request: LaunchRequest, resources: PodResources, names: Sequence[str]) -> dict[str, Any]:
    """The Indexed Job; index i does the cell `names[i]`."""
    command = request.command("--jobs", "1", "--cell", processes=resources.processes, python=resources.python)
    script = f"""cells=({" ".join(names)})
export {JOB_VARIABLE}="kubernetes {as_label_value(request.folder.name)} $HOSTNAME"
exec {command} "${{cells[$JOB_COMPLETION_INDEX]}}"
"""
    if len(script.encode()) > _LONGEST_SCRIPT:
        raise UsageError(
            f"A job's cells are named in one argument of at most {_LONGEST_SCRIPT} bytes, but {len(names)} cells are "
            "left. Submit the run in parts: add --shard 1/2, start that job, then --shard 2/2."
        )
    limits = resources.limits(cpu=resources.cpus, memory=resources.memory, gpus=resources.gpus)
    job = _job(request, resources, "cell", script, limits, completions=len(names))
    job["spec"] |= {
        "completionMode": "Indexed",
        "completions": len(names),
        "parallelism": min(len(names), resources.at_once),
        "backoffLimitPerIndex": resources.retries,
        "maxFailedIndexes": len(names),
    }
    return job


def table_manifest(request: LaunchRequest, resources: PodResources) -> dict[str, Any]:
    """The Job that waits until the cells are done, or nobody has been at one of them for long, and writes the table."""
    command = request.command("--table-only", "--wait", f"{resources.table_wait_min:g}", python=resources.python)
    limits = resources.limits(cpu=1, memory=resources.table_memory)
    job = _job(request, resources, "table", f"exec {command}\n", limits)
    job["spec"]["backoffLimit"] = _RETRIES_OF_TABLE
    # Exit code 1 says that the table lacks something that failed: to write it again would not help.
    partial = {"action": "FailJob", "onExitCodes": {"containerName": "table", "operator": "In", "values": [1]}}
    job["spec"]["podFailurePolicy"]["rules"].append(partial)
    return job


def _job(
    request: LaunchRequest,
    resources: PodResources,
    what: str,
    script: str,
    limits: Mapping[str, Any],
    *,
    completions: int = 0,
) -> dict[str, Any]:
    """What both Jobs have alike."""
    labels = {
        "app.kubernetes.io/name": "adaptive-bench",
        "app.kubernetes.io/component": what,
        "app.kubernetes.io/instance": as_label_value(request.folder.name),
        **resources.labels,
    }
    run = request.folder.name if what == "cell" else f"{what}-{request.folder.name}"
    about: dict[str, Any] = {
        "generateName": job_prefix(run, str(request.folder.resolve()), completions),
        "labels": labels,
        "annotations": {"adaptive-bench/run": str(request.folder.resolve())},
    }
    if resources.namespace is not None:
        about["namespace"] = resources.namespace
    # One that was asked to stop, or whose machine went away, has not failed.
    ignored = [
        {"action": "Ignore", "onExitCodes": {"containerName": what, "operator": "In", "values": [STOPPED]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": ignored},
            "template": {"metadata": {"labels": labels}, "spec": resources.pod(what, script, limits)},
        },
    }


def _write(request: LaunchRequest, name: str, values: Mapping[str, Any]) -> str:
    """Write a manifest; its path, fit for a shell."""
    file: Path = request.folder / "kubernetes" / name
    atomic.write_text(file, yaml.safe_dump(values, sort_keys=False, width=120))
    return shlex.quote(str(file))
