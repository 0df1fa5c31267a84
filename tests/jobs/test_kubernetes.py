"""What the launcher `kubernetes` writes is what the API server takes, whatever runs, models and methods are called."""

import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.jobs.launchers import kubernetes
from adaptive_bench.jobs.launchers.kubernetes import PodResources, job_prefix
from adaptive_bench.runs import plan
from adaptive_bench.runs.launching import launch_request
from adaptive_bench.runs.trained import run_name

FULL = """
image: registry.example.org/team/adaptive-bench@sha256:0123456789abcdef
claim: runs
mount: {mount}
namespace: research
cpus: 8
memory: 32Gi
gpus: 2
processes: 2
labels: {{kueue.x-k8s.io/queue-name: nightly}}
pod:
  serviceAccountName: bench
  imagePullSecrets: [{{name: registry}}]
  nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}
  tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {{type: RuntimeDefault}}}}
  volumes: [{{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: 16Gi}}}}]
container:
  env:
  - {{name: HF_HOME, value: /data/hub}}
  - {{name: HF_TOKEN, valueFrom: {{secretKeyRef: {{name: hugging-face, key: token}}}}}}
  securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
  volumeMounts: [{{name: shared-memory, mountPath: /dev/shm}}]
"""
GENERATED, LABEL = 58, re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, of at most 63 characters


def last_pod(job):
    """What the server calls the last pod of a job: the start of a name, five characters of its own, and an index."""
    return f"{job['metadata']['generateName'][:GENERATED]}x7k2p-{job['spec'].get('completions', 1) - 1}"


def manifests(folder: Path, cells: int = 2, **resources):
    given = PodResources.model_validate({"image": "i", "claim": "c", "mount": "/data"} | resources)
    request = SimpleNamespace(folder=folder, command=lambda *more, **_: " ".join(["run", *more]))
    job = kubernetes.manifest(request, given, [f"{n:064}" for n in range(cells)])
    return job, kubernetes.table_manifest(request, given)


@pytest.fixture
def request_of(config_of, tmp_path, lines):
    """`request_of(text)`: what the launcher is given of a run of two cells, with these resources or none."""
    config = config_of("dense,gateskip")
    file = tmp_path / "resources.yaml"

    def make(text):
        if text is not None:
            file.write_text(text.format(mount=tmp_path))
        folder = config.out / "runs" / run_name(config)
        return launch_request(plan(config), folder, lines, resources=None if text is None else file)

    return make


@pytest.fixture
def written(request_of):
    """Both manifests of a run with all that can be asked for."""
    request = request_of(FULL)
    launched = kubernetes.launch(request)
    job, table = (request.folder / "kubernetes" / name for name in ("job.yaml", "table.yaml"))
    assert f"kubectl create -f {job} -f {table}" in launched.submitted
    return tuple(yaml.safe_load(one.read_text()) for one in (job, table))


def test_all_that_can_be_asked_for_is_taken_by_the_server(written):
    validate = pytest.importorskip("kubernetes_validate", reason="needs the package kubernetes-validate")
    for manifest in written:
        assert LABEL.fullmatch(last_pod(manifest))
        validate.validate(manifest, validate.latest_version(), strict=True)


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=120)


@pytest.mark.slow
@settings(deadline=None)
@given(names, st.sampled_from([1, 2, 11, 101, 1001]))
def test_any_name_of_a_run_is_made_fit(name, cells):
    for manifest in manifests(Path("/data/out/runs") / name, cells):
        assert LABEL.fullmatch(last_pod(manifest))


@pytest.mark.slow
@settings(deadline=None)
@given(names, names, st.integers(1, 100_000))
def test_runs_have_names_of_their_own(one, other, completions):
    """Also where they differ only in what a name has no room for, and after the server has cut it."""
    prefixes = [job_prefix(name, f"/data/{name}") for name in (one, other)]
    assert (prefixes[0][:GENERATED] == prefixes[1][:GENERATED]) == (one == other)
    assert all(len(f"{prefix}x7k2p-{completions - 1}") <= 63 for prefix in prefixes)


def test_a_name_can_be_read():
    prefix = job_prefix("Llama-3.2-1B-random_skip-mod-seed1-3f9a2c1b", "/data/runs/x")
    assert prefix.startswith("ab-llama-3-2-1b-random-skip-mod-seed1-")


def test_pods_get_what_was_asked_for(written):
    job, table = written
    for manifest in written:
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
        assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "hugging-face", "key": "token"}}
        assert env["HF_HOME"] == "/data/hub" and "OMP_NUM_THREADS" in env
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    shared = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert shared in pod["volumes"]
    assert [one["name"] for one in container["volumeMounts"]] == ["output", "shared-memory"]
    assert pod["serviceAccountName"] == "bench" and pod["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "nightly"
    (writer,) = table["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2 and "nvidia.com/gpu" not in str(writer["resources"])


def test_what_cannot_be_had_is_refused(request_of):
    for text, said in ((None, "--resources"), ("image: i\nclaim: c\nmount: /elsewhere\n", "is not under mount")):
        with pytest.raises(UsageError, match=said):
            kubernetes.launch(request_of(text))
    with pytest.raises(UsageError, match="--shard 1/2"):
        manifests(Path("/data/runs/x"), 2100)


def test_each_index_is_a_cell_and_a_job_of_its_own_writes_the_table(written, request_of):
    def given(manifest, **environment):
        """The end of the command that a pod of it executes."""
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        shell, flag, script = container["command"]
        command, env = [shell, flag, script.replace("exec ", "echo ")], {"PATH": os.environ["PATH"], **environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()

    job, table = written
    spec, names = job["spec"], [one.name for one in request_of(None).pending()]
    assert (spec["completions"], spec["completionMode"], spec["podReplacementPolicy"]) == (2, "Indexed", "Failed")
    assert given(job, JOB_COMPLETION_INDEX="1")[-2:] == ["--cell", names[1]]
    assert given(table)[-3:] == ["--table-only", "--wait", "30"]
