"""The launcher `kubernetes` writes the manifest of an Indexed Job whose indices do one cell each.

The output folder must be on a volume that all pods share, under the same path as on this machine. The indices of a Job
have no order. So a cell that starts from the training of another cell waits for it, or trains it if no other process
does, and whichever cell is done last writes the table.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import yaml
from pydantic import Field

from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.launchers import STOPPED, LaunchRequest, LaunchResult
from adaptive_bench.recipe import Positive, Strict
from adaptive_bench.store import atomic

_READABLE = 36  # characters of a run's name in that of a Job
_CONTAINER = "cell"
_LONGEST_SCRIPT = 128 * 1024 - 1  # bytes of one argument on Linux


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
    labels: dict[str, str] = Field(default_factory=dict)
    pod: dict[str, Any] = Field(default_factory=dict)
    container: dict[str, Any] = Field(default_factory=dict)

    def pod_spec(self, script: str) -> dict[str, Any]:
        """Return a pod with one container that runs a bash script."""
        limits = {"cpu": self.cpus, "memory": self.memory} | ({"nvidia.com/gpu": self.gpus} if self.gpus else {})
        container = {
            "name": _CONTAINER,
            "image": self.image,
            "command": ["/bin/bash", "-c", script],
            "workingDir": self.mount,
            "env": [{"name": "OMP_NUM_THREADS", "value": str(max(1, self.cpus // self.processes))}],
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
    """Write the manifest of a Job for the work that is left.

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
    file = request.folder / "kubernetes" / "job.yaml"
    atomic.write_text(file, yaml.safe_dump(manifest(request, resources, names), sort_keys=False, width=120))
    return LaunchResult(
        submitted=f"Wrote a job of {len(names)} cells, the last of which writes the table. Start it with `kubectl "
        f"create -f {shlex.quote(str(file))}`; each call makes a new job of what was left now. Running the command "
        f"again writes a job of what is left by then, and `{request.command('--table-only')}` writes the table of what "
        f"is there."
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
    folder = str(request.folder.resolve())
    labels = {
        "app.kubernetes.io/name": "adaptive-bench",
        # As much as fits into the value of a label.
        "app.kubernetes.io/instance": re.sub(r"[^A-Za-z0-9_.-]+", "-", request.folder.name)[:63].strip("-_."),
        **resources.labels,
    }
    about = {
        "generateName": job_prefix(request.folder.name, folder),
        "labels": labels,
        "annotations": {"adaptive-bench/run": folder},
        **({} if resources.namespace is None else {"namespace": resources.namespace}),
    }
    # A pod that was asked to stop, or whose machine went away, does not count as failed.
    ignored = [
        {"action": "Ignore", "onExitCodes": {"containerName": _CONTAINER, "operator": "In", "values": [STOPPED]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "podReplacementPolicy": "Failed",  # not while the old pod still saves its state
            "podFailurePolicy": {"rules": ignored},
            "template": {"metadata": {"labels": labels}, "spec": resources.pod_spec(script)},
            "completionMode": "Indexed",
            "completions": len(names),
            "parallelism": min(len(names), resources.at_once),
            "backoffLimitPerIndex": resources.retries,
            "maxFailedIndexes": len(names),  # a cell that fails does not end the others
        },
    }
