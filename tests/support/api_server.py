"""What the API server of Kubernetes says of a Job before it takes it, beyond what its schema says.

Written after the rules of `ValidateJob`, `ValidatePodTemplateSpec` and what they call (k8s.io/kubernetes/pkg/apis/batch
and .../core, k8s.io/apimachinery/pkg/util/validation), as far as a Job of ours can break them. On purpose it shares no
line with the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

LABEL, SUBDOMAIN, GENERATED = 63, 253, 58
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_SUFFIXES = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
_EFFECTS = {"NoSchedule", "PreferNoSchedule", "NoExecute"}


def is_label(text: str) -> bool:
    """`IsDNS1123Label`."""
    return len(text.encode()) <= LABEL and bool(_DNS_LABEL.fullmatch(text))


def is_subdomain(text: str) -> bool:
    """`IsDNS1123Subdomain`."""
    return len(text.encode()) <= SUBDOMAIN and bool(_DNS_SUBDOMAIN.fullmatch(text))


def is_label_value(text: str) -> bool:
    """`IsValidLabelValue`."""
    return text == "" or (len(text.encode()) <= LABEL and bool(_QUALIFIED.fullmatch(text)))


def is_qualified_name(text: str) -> bool:
    """`IsQualifiedName`."""
    parts = text.split("/")
    if len(parts) > 2 or (len(parts) == 2 and not is_subdomain(parts[0])):
        return False
    return len(parts[-1].encode()) <= LABEL and bool(_QUALIFIED.fullmatch(parts[-1]))


def is_variable(text: str) -> bool:
    """`IsEnvVarName`."""
    return bool(_VARIABLE.fullmatch(text)) and text != "." and not text.startswith("..")


def is_secret_key(text: str) -> bool:
    """`IsConfigMapKey`."""
    fits = len(text) <= SUBDOMAIN and bool(_SECRET_KEY.fullmatch(text))
    return fits and text != "." and not text.startswith("..")


def quantity(value: Any) -> Decimal | None:
    """`ParseQuantity`; `None` if it is none."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return None
    number, suffix = found.groups()
    try:
        amount = Decimal(number)
    except ArithmeticError:
        return None
    if suffix[:1] in ("e", "E") and suffix[1:]:
        return amount.scaleb(int(suffix[1:])) if re.fullmatch(r"[+-]?\d+", suffix[1:]) else None
    if suffix not in _SUFFIXES:
        return None
    if suffix.endswith("i"):
        return amount * 1024 ** (1 + "KMGTPE".index(suffix[0]))
    powers = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    return amount.scaleb(powers[suffix])


def named(metadata: dict[str, Any]) -> str:
    """The name the server gives an object: its own, or what was asked for and five random characters."""
    return metadata.get("name") or metadata["generateName"][:GENERATED] + "x7k2p"


def problems(job: dict[str, Any]) -> list[str]:
    """Everything that makes the server, or the controller that makes its pods, refuse a Job."""
    return [*_metadata(job["metadata"], "metadata"), *_name(job), *_spec(job["spec"]), *_template(job["spec"])]


def _metadata(about: dict[str, Any], where: str) -> Iterator[str]:
    for key, value in about.get("labels", {}).items():
        if not is_qualified_name(key) or not is_label_value(value):
            yield f"{where}.labels: {key}: {value}"
    annotations = about.get("annotations", {})
    for key in annotations:
        if not is_qualified_name(key.lower()):
            yield f"{where}.annotations: {key}"
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > 256 * 1024:
        yield f"{where}.annotations: too long"
    if "namespace" in about and not is_label(about["namespace"]):
        yield f"{where}.namespace: {about['namespace']}"


def _name(job: dict[str, Any]) -> Iterator[str]:
    about, spec = job["metadata"], job["spec"]
    prefix = about.get("generateName", "")
    if prefix and not is_subdomain(prefix[:-1] + "a" if prefix.endswith("-") else prefix):
        yield f"metadata.generateName: {prefix}"
    name = named(about)
    if not is_subdomain(name):
        yield f"metadata.name: {name}"
    if not is_label_value(name):
        yield f"spec.template.labels: job-name: {name}"
    if spec.get("completionMode") == "Indexed" and spec["completions"] > 0:
        host = f"{name}-{spec['completions'] - 1}"
        if not is_label(host):
            yield f"metadata.name: will not able to create pod with invalid DNS label: {host}"


def _spec(spec: dict[str, Any]) -> Iterator[str]:
    indexed = spec.get("completionMode") == "Indexed"
    for key in ("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"):
        if spec.get(key, 0) < 0:
            yield f"spec.{key}: negative"
    if indexed and "completions" not in spec:
        yield "spec.completions: needed"
    if not indexed and ("backoffLimitPerIndex" in spec or "maxFailedIndexes" in spec):
        yield "spec.backoffLimitPerIndex: requires indexed completion mode"
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield "spec.backoffLimitPerIndex: needed"
    if indexed and spec.get("maxFailedIndexes", 0) > spec["completions"]:
        yield "spec.maxFailedIndexes: above completions"
    if "podFailurePolicy" in spec:
        if spec.get("podReplacementPolicy", "Failed") != "Failed":
            yield "spec.podReplacementPolicy"
        if spec["template"]["spec"].get("restartPolicy") != "Never":
            yield "spec.template.spec.restartPolicy: only Never with podFailurePolicy"
        yield from _failure_policy(spec)
    if spec["template"]["spec"].get("restartPolicy") not in ("Never", "OnFailure"):
        yield "spec.template.spec.restartPolicy"


def _failure_policy(spec: dict[str, Any]) -> Iterator[str]:
    rules = spec["podFailurePolicy"]["rules"]
    containers = {container["name"] for container in spec["template"]["spec"]["containers"]}
    if len(rules) > 20:
        yield "podFailurePolicy: too many rules"
    for rule in rules:
        if ("onExitCodes" in rule) == bool(rule.get("onPodConditions")):
            yield f"podFailurePolicy: one of onExitCodes and onPodConditions: {rule}"
        if rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield "podFailurePolicy: FailIndex needs backoffLimitPerIndex"
        codes = rule.get("onExitCodes")
        if codes is not None:
            values = codes["values"]
            if codes.get("containerName", next(iter(containers))) not in containers:
                yield f"podFailurePolicy: no container {codes['containerName']}"
            if not values or len(values) > 255 or values != sorted(set(values)):
                yield f"podFailurePolicy: values {values}"
            if codes["operator"] == "In" and 0 in values:
                yield "podFailurePolicy: 0"
        for condition in rule.get("onPodConditions", ()):
            if not is_qualified_name(condition["type"]) or condition.get("status") not in ("True", "False", "Unknown"):
                yield f"podFailurePolicy: {condition}"


def _template(spec: dict[str, Any]) -> Iterator[str]:
    template = spec["template"]
    yield from _metadata(template.get("metadata", {}), "spec.template")
    pod = template["spec"]
    volumes = [volume["name"] for volume in pod.get("volumes", ())]
    if len(set(volumes)) < len(volumes) or not all(map(is_label, volumes)):
        yield f"volumes: {volumes}"
    for volume in pod.get("volumes", ()):
        kinds = volume.keys() - {"name"}
        if len(kinds) != 1:
            yield f"volumes: more or less than one kind: {volume}"
        if "persistentVolumeClaim" in volume and not volume["persistentVolumeClaim"].get("claimName"):
            yield "volumes: claimName needed"
        size = volume.get("emptyDir", {}).get("sizeLimit")
        if size is not None and ((amount := quantity(size)) is None or amount < 0):
            yield f"volumes: sizeLimit {size}"
    for container in pod["containers"]:
        yield from _container(container, set(volumes))
    if pod.get("terminationGracePeriodSeconds", 0) < 0:
        yield "terminationGracePeriodSeconds"
    if "serviceAccountName" in pod and not is_subdomain(pod["serviceAccountName"]):
        yield f"serviceAccountName: {pod['serviceAccountName']}"
    if not all(secret.get("name") for secret in pod.get("imagePullSecrets", ())):
        yield "imagePullSecrets: name needed"
    for key, value in pod.get("nodeSelector", {}).items():
        if not is_qualified_name(key) or not is_label_value(value):
            yield f"nodeSelector: {key}: {value}"
    for toleration in pod.get("tolerations", ()):
        yield from _toleration(toleration)


def _container(container: dict[str, Any], volumes: set[str]) -> Iterator[str]:
    if not is_label(container["name"]):
        yield f"containers: {container['name']}"
    if not container["image"] or container["image"] != container["image"].strip():
        yield f"containers: image {container['image']!r}"
    for variable in container.get("env", ()):
        if not is_variable(variable["name"]):
            yield f"env: {variable['name']}"
        if "valueFrom" in variable:
            if variable.get("value"):
                yield f"env: value and valueFrom: {variable['name']}"
            reference = variable["valueFrom"]["secretKeyRef"]
            if not reference["name"] or not is_secret_key(reference["key"]):
                yield f"env: {reference}"
    paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    if len(set(paths)) < len(paths) or not all(paths):
        yield f"volumeMounts: {paths}"
    if missing := {mount["name"] for mount in container.get("volumeMounts", ())} - volumes:
        yield f"volumeMounts: no volume {missing}"
    resources = container.get("resources", {})
    for name, value in [*resources.get("limits", {}).items(), *resources.get("requests", {}).items()]:
        amount = quantity(value)
        if not is_qualified_name(name) or amount is None or amount < 0:
            yield f"resources: {name}: {value}"
        elif "/" in name and (amount != int(amount) or resources["requests"].get(name) != resources["limits"][name]):
            yield f"resources: {name} is whole and the same in requests and limits"
    for name, value in resources.get("requests", {}).items():
        wanted, most = quantity(value), quantity(resources.get("limits", {}).get(name, value))
        if wanted is not None and most is not None and wanted > most:
            yield f"resources: {name} is asked for above its limit"


def _toleration(toleration: dict[str, Any]) -> Iterator[str]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    if key and not is_qualified_name(key):
        yield f"tolerations: {key}"
    if not key and operator != "Exists":
        yield "tolerations: without a key the operator is Exists"
    if operator == "Exists" and toleration.get("value"):
        yield "tolerations: Exists has no value"
    if operator == "Equal" and not is_label_value(toleration.get("value", "")):
        yield f"tolerations: {toleration['value']}"
    if toleration.get("effect", "NoExecute") not in _EFFECTS:
        yield f"tolerations: {toleration['effect']}"
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield "tolerations: tolerationSeconds is for NoExecute"
