"""What pods of the launcher `kubernetes` get: the file of `--resources`, and the pod that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from adaptive_bench.jobs.launchers.kubernetes_names import (
    EnvironmentName,
    Folder,
    Image,
    Label,
    LabelKey,
    LabelValue,
    Quantity,
    SecretKey,
    Subdomain,
)
from adaptive_bench.recipe import Positive, Strict

_SHARED_MEMORY = "/dev/shm"


class SecretValue(Strict):
    """A value of a Secret, which never passes through here.

    Attributes:
        name: Of the Secret.
        key: Of the value in it.
    """

    name: Subdomain
    key: SecretKey


class Toleration(Strict):
    """A taint that pods put up with, in the words of Kubernetes."""

    key: LabelKey | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError("operator Exists takes no value")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key; write `operator: Exists` to tolerate every taint")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds is for the effect NoExecute")
        return self


class PodResources(Strict):
    """What the pods get; a YAML file for `--resources`.

    Attributes:
        image: A container image with this package installed.
        python: The interpreter in it.
        claim: The PersistentVolumeClaim that holds the output folder.
        mount: Where the volume is mounted; the output folder lies below.
        namespace: Of the jobs; `None` for that of the context.
        cpus, memory: As Kubernetes takes them.
        gpus: NVIDIA GPUs.
        shared_memory: Size of `/dev/shm`, which counts as memory; `None` leaves the 64 MiB of the container runtime.
        processes: That do one job together, one for each GPU (`torchrun`).
        at_once: Pods that run at the same time, at most.
        retries: How often one index is tried again after it failed.
        warn_s: How long a pod has to keep where it stands when it is asked to end.
        table_memory: Of the pod that writes the table; it has one core and no GPU.
        table_wait_min: After so many minutes in which nobody was at any cell the table is written with what is there.
        env: Environment variables.
        secrets: Environment variables with values of Secrets, such as `HF_TOKEN: {name: hub, key: token}`.
        pull_secrets: Secrets for the registry of the image.
        service_account: Whose rights the pods have.
        node_selector: Labels of the nodes they may run on.
        tolerations: Taints of nodes they may run on all the same.
        labels: Further labels of jobs and pods, for example `kueue.x-k8s.io/queue-name`.
        security_context: Of the pod, in the words of Kubernetes (`runAsUser`, `fsGroup`, ...).
        container_security_context: Of the container (`allowPrivilegeEscalation`, `capabilities`, ...).
    """

    image: Image
    claim: Subdomain
    mount: Folder
    python: Annotated[str, Field(min_length=1)] = "python"
    namespace: Label | None = None
    cpus: Positive = 1
    memory: Quantity = "4Gi"
    gpus: Annotated[int, Field(ge=0)] = 0
    shared_memory: Quantity | None = None
    processes: Positive = 1
    at_once: Positive = 8
    retries: Annotated[int, Field(ge=0)] = 1
    warn_s: Positive = 120
    table_memory: Quantity = "4Gi"
    table_wait_min: Annotated[float, Field(gt=0)] = 30.0
    env: dict[EnvironmentName, str] = Field(default_factory=dict)
    secrets: dict[EnvironmentName, SecretValue] = Field(default_factory=dict)
    pull_secrets: tuple[Subdomain, ...] = ()
    service_account: Subdomain | None = None
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    security_context: dict[str, Any] = Field(default_factory=dict)
    container_security_context: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_variable_once(self) -> Self:
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise ValueError(f"a variable has one value, but env and secrets both name {', '.join(both)}")
        return self

    def limits(self, *, cpu: int, memory: str, gpus: int = 0) -> dict[str, Any]:
        """Resources of a container: what it asks for is what it gets."""
        return {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpus} if gpus else {})

    def pod(self, name: str, script: str, limits: Mapping[str, Any]) -> dict[str, Any]:
        """A pod of one container that runs a script of bash.

        Args:
            limits: Of `limits`.
        """
        container: dict[str, Any] = {
            "name": name,
            "image": self.image,
            "command": ["/bin/bash", "-c", script],
            "workingDir": self.mount,
            "env": self._environment(limits),
            "resources": {"requests": dict(limits), "limits": dict(limits)},
            "volumeMounts": [{"name": "output", "mountPath": self.mount}],
        }
        volumes: list[dict[str, Any]] = [{"name": "output", "persistentVolumeClaim": {"claimName": self.claim}}]
        if self.shared_memory is not None:
            container["volumeMounts"].append({"name": "shared-memory", "mountPath": _SHARED_MEMORY})
            size = {"medium": "Memory", "sizeLimit": self.shared_memory}
            volumes.append({"name": "shared-memory", "emptyDir": size})
        if self.container_security_context:
            container["securityContext"] = self.container_security_context
        wishes: dict[str, Any] = {
            "serviceAccountName": self.service_account,
            "nodeSelector": self.node_selector,
            "tolerations": [toleration.model_dump(exclude_none=True) for toleration in self.tolerations],
            "imagePullSecrets": [{"name": secret} for secret in self.pull_secrets],
            "securityContext": self.security_context,
        }
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": self.warn_s,
            **{key: value for key, value in wishes.items() if value},
            "containers": [container],
            "volumes": volumes,
        }

    def _environment(self, limits: Mapping[str, Any]) -> list[dict[str, Any]]:
        values = {"OMP_NUM_THREADS": str(max(1, limits["cpu"] // self.processes)), **self.env}
        plain = [{"name": name, "value": value} for name, value in values.items() if name not in self.secrets]
        secret = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": value.name, "key": value.key}}}
            for name, value in self.secrets.items()
        ]
        return plain + secret
