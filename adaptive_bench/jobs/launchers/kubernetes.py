"""The launcher `kubernetes` writes the manifests of an Indexed Job whose indices do one cell each, and of a Job that
writes the table.

The output folder must be on a volume that all pods share, under the same path as on this machine. Kubernetes has no
order of Jobs, or of the indices of a Job. So a cell that starts from the training of another cell waits for it, or
trains it if no other process does, and the Job that writes the table waits for the records of all cells.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.launchers import STOPPED, LaunchRequest, LaunchResult
from adaptive_bench.recipe import Positive, Strict
from adaptive_bench.store import atomic

_READABLE = 36  # characters of a run's name in that of a Job
_LONGEST_SCRIPT = 128 * 1024 - 1  # bytes of one argument on Linux
_RETRIES_OF_TABLE = 3


def job_prefix(run: str, place: str) -> str:
    """Return the beginning of a Job's name (`generateName`) for a run. It is readable, unique to the run, and short
    enough for all names derived from it: the server appends five characters, and pods of an Indexed Job get the host
    name `<job>-<index>`, which is one DNS label. Runs with equal names are told apart by their folder, the `place`.
    """
    # `ab-`, 36, `-`, 8, `-` and the server's 5 are 54 of the 63 characters of a label; 9 are left for `-<index>`.
    readable = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:_READABLE].strip("-")
    return "-".join([*filter(None, ("ab", readable, hashlib.sha256(place.encode()).hexdigest()[:8])), ""])


class PodResources(Strict):
    """Resources of the pods; the keys of the YAML file for `--resources`.

    Attributes:
        image: A container image with this package installed.
        python: The interpreter in the image.
        claim: The PersistentVolumeClaim that holds the output folder.
        mount: Where the volume is mounted; the output folder lies below.
        namespace: Namespace of the jobs; `None` for that of the context.
        cpus, memory: Cores and memory of a pod; memory in the notation of Kubernetes.
        gpus: NVIDIA GPUs of a pod.
        processes: Processes that do one job together, one for each GPU (`torchrun`).
        at_once: Largest number of pods that run at the same time.
        retries: How often one index is tried again after it failed.
        warn_s: Time that a pod has to save its state when it is asked to end.
        table_memory: Memory of the pod that writes the table; it has one core and no GPU.
        table_wait_min: After so many minutes without a process working on any cell, the table is written with what is
            there.
        labels: Further labels of jobs and pods, for example `kueue.x-k8s.io/queue-name`.
        pod, container: Further fields of the pods and of their container, in the form of Kubernetes.
    """

    image: str
    claim: str
    mount: Annotated[str, Field(pattern="^/")]
    python: Annotated[str, Field(min_length=1)] = "python"
    namespace: str | None = None
    cpus: Positive = 1
    memory: str = "4Gi"
    gpus: Annotated[int, Field(ge=0)] = 0
    processes: Positive = 1
    at_once: Positive = 8
    retries: Annotated[int, Field(ge=0)] = 1
    warn_s: Positive = 120
    table_memory: str = "4Gi"
    table_wait_min: Annotated[float, Field(gt=0)] = 30.0
    labels: dict[str, str] = Field(default_factory=dict)
    pod: dict[str, Any] = Field(default_factory=dict)
    container: dict[str, Any] = Field(default_factory=dict)

    def pod_spec(self, name: str, script: str, *, cpu: int, memory: str, gpus: int = 0) -> dict[str, Any]:
        """Return a pod with one container that runs a bash script."""
        limits = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpus} if gpus else {})
        container = {
            "name": name,
            "image": self.image,
            "command": ["/bin/bash", "-c", script],
            "workingDir": self.mount,
            "env": [{"name": "OMP_NUM_THREADS", "value": str(max(1, cpu // self.processes))}],
            "resources": {"requests": limits, "limits": dict(limits)},
            "volumeMounts": [{"name": "output", "mountPath": self.mount}],
        }
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": self.warn_s,
            "containers": [_with(container, self.container)],
            "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": self.claim}}],
        }
        return _with(pod, self.pod)


def _with(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with further ones, which are appended to a list and otherwise replace."""
    both = {key: [*values[key], *more[key]] for key in more if isinstance(values.get(key), list)}
    return {**values, **more, **both}


def launch(request: LaunchRequest) -> LaunchResult:
    """Write the manifests for the work that is left.

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
        f"the command again writes a job of what is left by then, and `{request.command('--table-only')}` writes the "
        f"table of what is there."
    )


def manifest(request: LaunchRequest, resources: PodResources, names: Sequence[str]) -> dict[str, Any]:
    """Return the Indexed Job, whose index i does the cell `names[i]`."""
    command = request.command("--cell", processes=resources.processes, python=resources.python)
    # With `exec` the signal to stop reaches Python.
    script = f"""cells=({" ".join(names)})
exec {command} "${{cells[$JOB_COMPLETION_INDEX]}}"
"""
    if len(script.encode()) > _LONGEST_SCRIPT:
        raise UsageError(
            f"A job's cells are named in one argument of at most {_LONGEST_SCRIPT} bytes, but {len(names)} cells are "
            "left. Submit the run in parts: add --shard 1/2, start that job, then --shard 2/2."
        )
    pod = resources.pod_spec("cell", script, cpu=resources.cpus, memory=resources.memory, gpus=resources.gpus)
    job = _job(request, resources, "cell", pod)
    job["spec"] |= {
        "completionMode": "Indexed",
        "completions": len(names),
        "parallelism": min(len(names), resources.at_once),
        "backoffLimitPerIndex": resources.retries,
        "maxFailedIndexes": len(names),  # a cell that fails does not end the others
    }
    return job


def table_manifest(request: LaunchRequest, resources: PodResources) -> dict[str, Any]:
    """Return the Job that writes the table. It first waits until the cells are done, or until no process has worked on
    any cell for `table_wait_min` minutes.
    """
    command = request.command("--table-only", "--wait", f"{resources.table_wait_min:g}", python=resources.python)
    pod = resources.pod_spec("table", f"exec {command}\n", cpu=1, memory=resources.table_memory)
    job = _job(request, resources, "table", pod)
    job["spec"]["backoffLimit"] = _RETRIES_OF_TABLE
    # Exit code 1 means that the table lacks failed work; writing the table again would not help.
    partial = {"action": "FailJob", "onExitCodes": {"containerName": "table", "operator": "In", "values": [1]}}
    job["spec"]["podFailurePolicy"]["rules"].append(partial)
    return job


def _job(request: LaunchRequest, resources: PodResources, what: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that both Jobs have in common."""
    labels = {
        "app.kubernetes.io/name": "adaptive-bench",
        "app.kubernetes.io/component": what,
        # As much as fits into the value of a label.
        "app.kubernetes.io/instance": re.sub(r"[^A-Za-z0-9_.-]+", "-", request.folder.name)[:63].strip("-_."),
        **resources.labels,
    }
    run = request.folder.name if what == "cell" else f"{what}-{request.folder.name}"
    about = {
        "generateName": job_prefix(run, str(request.folder.resolve())),
        "labels": labels,
        "annotations": {"adaptive-bench/run": str(request.folder.resolve())},
        **({} if resources.namespace is None else {"namespace": resources.namespace}),
    }
    # A pod that was asked to stop, or whose machine went away, does not count as failed.
    ignored = [
        {"action": "Ignore", "onExitCodes": {"containerName": what, "operator": "In", "values": [STOPPED]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "podReplacementPolicy": "Failed",  # not while the old pod still saves its state
            "podFailurePolicy": {"rules": ignored},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _write(request: LaunchRequest, name: str, values: Mapping[str, Any]) -> str:
    """Write a manifest, and return its path, quoted for a shell."""
    file: Path = request.folder / "kubernetes" / name
    atomic.write_text(file, yaml.safe_dump(values, sort_keys=False, width=120))
    return shlex.quote(str(file))
