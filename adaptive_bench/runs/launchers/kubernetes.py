"""The launcher `kubernetes`: writes the manifest of an Indexed Job whose indices do one cell each.

The output folder must be on a volume that all pods share, under the same path as here. A cell that starts from another
one's training waits for it, or trains it if nobody is at it: an Indexed Job knows no order.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import yaml

from adaptive_bench import atomic
from adaptive_bench.errors import UsageError
from adaptive_bench.recipe import Positive, Strict
from adaptive_bench.runs.launchers.order import STOPPED, Launched, Order
from adaptive_bench.runs.records.holder import JOB_VARIABLE


class Resources(Strict):
    """What the pods get; a YAML file for `--resources`.

    Attributes:
        image: A container image with this package installed.
        python: The interpreter in it.
        claim: The PersistentVolumeClaim that holds the output folder.
        mount: Where the volume is mounted; the output folder lies below.
        namespace: Of the job; `None` for that of the context.
        cpus, memory: As Kubernetes takes them.
        gpus: NVIDIA GPUs.
        processes: That do one cell together, one for each GPU (`torchrun`).
        at_once: Pods that run at the same time, at most.
        retries: How often one index is tried again after it failed.
        warn_s: How long a pod has to keep where it stands when it is asked to end.
    """

    image: str
    claim: str
    mount: str
    python: str = "python"
    namespace: str | None = None
    cpus: Positive = 1
    memory: str = "4Gi"
    gpus: int = 0
    processes: Positive = 1
    at_once: Positive = 8
    retries: int = 1
    warn_s: Positive = 120


def launch(order: Order) -> Launched:
    """Write the manifest of what is left.

    Raises:
        UsageError: There are no resources, or the output folder is not on the shared volume.
    """
    if order.resources is None:
        raise UsageError(
            "The launcher kubernetes needs to know image, claim and mount. Write them into a YAML file and name it "
            "with --resources; docs/cluster.md shows one."
        )
    resources = order.settings(Resources)
    if not order.folder.resolve().is_relative_to(resources.mount):
        raise UsageError(
            f"The output folder lies on the volume that all pods share, but {str(order.folder.resolve())!r} is not "
            f"under mount {resources.mount!r}. Choose another --out or correct the mount."
        )
    names = [cell.folder.name for cell in order.cells_left()]
    if not names:
        return Launched()
    file = order.folder / "kubernetes" / "job.yaml"
    atomic.write_text(file, yaml.safe_dump(manifest(order, resources, names), sort_keys=False, width=120))
    return Launched(
        submitted=f"Wrote a job of {len(names)} cells. Start it with `kubectl create -f {shlex.quote(str(file))}`; "
        f"when it has ended, `{order.command('--table-only')}` writes the table. The same command writes a job of what "
        "is left."
    )


def manifest(order: Order, resources: Resources, names: Sequence[str]) -> dict[str, Any]:
    """The Indexed Job; index i does the cell `names[i]`."""
    command = order.command("--jobs", "1", "--cell", processes=resources.processes, python=resources.python)
    name = f"adaptive-bench-{order.folder.name}"
    script = f"""cells=({" ".join(names)})
export {JOB_VARIABLE}="kubernetes {name} $JOB_COMPLETION_INDEX"
exec {command} "${{cells[$JOB_COMPLETION_INDEX]}}"
"""
    limits: dict[str, Any] = {"cpu": resources.cpus, "memory": resources.memory}
    if resources.gpus:
        limits["nvidia.com/gpu"] = resources.gpus
    container = {
        "name": "cell",
        "image": resources.image,
        "command": ["/bin/bash", "-c", script],
        "workingDir": resources.mount,
        "env": [{"name": "OMP_NUM_THREADS", "value": str(max(1, resources.cpus // resources.processes))}],
        "resources": {"requests": limits, "limits": limits},
        "volumeMounts": [{"name": "output", "mountPath": resources.mount}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": resources.warn_s,
        "containers": [container],
        "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": resources.claim}}],
    }
    about: dict[str, Any] = {"generateName": f"{name}-"}
    if resources.namespace is not None:
        about["namespace"] = resources.namespace
    # One that was asked to stop, or whose machine went away, has not failed.
    ignored = [
        {"action": "Ignore", "onExitCodes": {"containerName": "cell", "operator": "In", "values": [STOPPED]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "completionMode": "Indexed",
            "completions": len(names),
            "parallelism": min(len(names), resources.at_once),
            "backoffLimitPerIndex": resources.retries,
            "maxFailedIndexes": len(names),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": ignored},
            "template": {"spec": pod},
        },
    }
