"""`make gpu` from end to end on the CPU, with tiny shapes and nothing but PyTorch, transformers and what they need."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.runs.projection import SHAPES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
MODULES = ("bare", "gpu", "gpu_conformance", "gpu_page", "gpu_speed", "gpu_training", "measure", "page", "plot")
MODULES += ("pydantic_stand_in", "roofline", "training_step")


@pytest.fixture(scope="module")
def benchmark():
    """Import a file of `benchmarks/` as the benchmarks themselves do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module
        for name in MODULES:
            sys.modules.pop(name, None)


def _needs(*names):
    """Distributions and all that they need, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        try:
            one = distribution(waiting.pop())
        except PackageNotFoundError:  # for another system
            continue
        if one.metadata["Name"] not in found:
            found.add(one.metadata["Name"])
            needs = (need for need in one.requires or [] if "extra ==" not in need)
            waiting += [re.match(r"[\w.\-]+", need)[0] for need in needs]
    return found


@pytest.fixture(scope="module")
def bare_machine(tmp_path_factory):
    """A folder with links to PyTorch, transformers and what they need, but pydantic; nothing of ours is installed."""
    folder = tmp_path_factory.mktemp("site")
    for name in _needs("torch", "transformers"):
        if name.startswith("pydantic"):
            continue
        dist = distribution(name)
        for top in {file.parts[0] for file in dist.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link, target = folder / top, Path(str(dist.locate_file(top)))
            if target.exists() and not link.exists():
                link.symlink_to(target)
    return folder


@pytest.fixture(scope="module")
def tiny_run(bare_machine, tmp_path_factory):
    """The finished process, and its record."""
    out = tmp_path_factory.mktemp("out") / "gpu.json"
    environment = {"PYTHONPATH": str(bare_machine), "PATH": os.environ["PATH"], "HOME": str(out.parent)}
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-S", str(FOLDER / "gpu.py"), "--tiny", "--out", str(out)]
    kept = [*FOLDER.glob("*.json"), ROOT / "docs" / "benchmarks.md"]
    before = [file.stat().st_mtime_ns for file in kept]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=out.parent)
    assert [file.stat().st_mtime_ns for file in kept] == before  # a trial writes nothing into the repository
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done, json.loads(out.read_text())


def test_it_runs_to_its_end_with_pytorch_and_transformers_alone_and_records_every_variant(tiny_run, benchmark):
    """Each with its share of the roofline."""
    done, record = tiny_run
    assert "adaptive-bench is not installed" in done.stdout and "pydantic is not installed" in done.stdout
    assert record["failed"] == record["left_out"] == [] and record["elapsed_s"] < 60
    assert {"peaks", "conformance", "prefill", "static_decode", "training", "suite"} <= set(record)
    variants, batches = set(benchmark("gpu_speed").VARIANTS), benchmark("gpu").TINY.batches
    found = {(row["batch"], row["variant"]) for row in record["decode"]}
    assert found == {(batch, name) for batch in batches for name in {"plain", *variants}}
    for row in [*record["decode"], *record["prefill"]]:
        assert min(row["seconds"], row["flops"], row["read_bytes"]) > 0 and row["bound"] in ("products", "memory")
        floor_s = max(row["flops"] / record["peaks"]["flops_per_s"], row["read_bytes"] / record["peaks"]["bytes_per_s"])
        assert row["roofline"] == pytest.approx(floor_s / row["seconds"])
    prefill = {row["variant"]: row for row in record["prefill"]}
    assert prefill["70"]["flops"] < prefill["25"]["flops"] < prefill["plain"]["flops"]
    assert [one["method"] for one in record["training"]] == ["gateskip", "dense"]


def test_the_section_is_made_of_the_record(tiny_run, benchmark):
    done, record = tiny_run
    section = benchmark("gpu_page").section(record)
    assert section in done.stdout and "nan" not in section and "None" not in section
    headings = ("On a GPU", "Prefill on a GPU", "Decode on a GPU", "Against a static cache", "Training steps")
    for heading in headings:
        assert f"# {heading}" in section
    short = {key: record[key] for key in ("peaks", "model", "device", "torch", "transformers", "python", "elapsed_s")}
    bare = benchmark("gpu_page").section(short | {"left_out": ["suite"], "failed": [{"part": "x", "error": "E: no"}]})
    assert "Prefill" not in bare and "No time was left for: suite." in bare and "Failed: x (E: no)." in bare
    with_gpu = benchmark("page").render({"gpu": record})["benchmarks.md"]
    assert section in with_gpu and "On a GPU" not in benchmark("page").render({})["benchmarks.md"]


def test_what_differs_from_the_cpu_is_told(benchmark):
    compare, cpu = benchmark("gpu_conformance").compare, torch.device("cpu")
    assert compare("gateskip", "llama", cpu)["wrong"] == []

    def shift(model):
        with torch.no_grad():
            model.backbone_model.model.layers[0].mlp.down_proj.weight.mul_(1.2)

    found = compare("static_depth", "llama", cpu, change=shift)
    assert any(line.startswith("fp32: logits differ") for line in found["wrong"])
    assert any(line.startswith("bf16: logits differ") for line in found["wrong"])


def test_a_part_that_fails_or_has_no_time_is_in_the_record_and_the_others_go_on(benchmark, tmp_path):
    gpu = benchmark("gpu")
    session = gpu.Session({}, tmp_path / "gpu.json", budget_s=100)
    with session.part("one"):
        raise RuntimeError("out of memory\nand more")
    with session.part("two", least_s=1000) as has_time:
        assert not has_time
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record["failed"] == [{"part": "one", "error": "RuntimeError: out of memory"}]
    assert record["left_out"] == ["two"]
    assert gpu.wrong(record) == ["one failed: RuntimeError: out of memory"]


def test_a_part_that_goes_on_when_the_time_is_over_is_cut_off(benchmark, monkeypatch):
    gpu = benchmark("gpu")
    monkeypatch.setattr(gpu, "GRACE_S", 0.2)
    session = gpu.Session({}, None, budget_s=0.1)
    begun_s = time.monotonic()
    with session.part("endless"), gpu._kept_apart(session, "one of its pieces"):
        while True:
            pass
    with session.part("the next") as has_time:
        assert not has_time
    assert time.monotonic() - begun_s < 10
    cut_off = {"part": "endless", "error": "CutOffError: no time was left for the rest of it"}
    assert session.record["failed"] == [cut_off]
    assert session.record["left_out"] == ["the next"]
    gpu._compare(session, ["dense", "mod"], "llama", torch.device("cpu"))
    assert session.record["left_out"][1:] == ["dense on llama", "mod on llama"]


COMPARE_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
import bare
bare.prepare()
import gpu, torch
torch.set_num_threads(1)
session = gpu.Session({}, None, budget_s=1000)
gpu._compare(session, gpu._all_specs(), "llama", torch.device("cpu"))
print(gpu.wrong(session.record) + session.record["left_out"], len(session.record["conformance"]))
"""


def test_every_method_is_compared_in_both_semantics_without_pydantic(bare_machine, tmp_path):
    """Parameters of every method are read by the stand-in; a method that needs more than it knows fails here."""
    environment = {"PYTHONPATH": str(bare_machine), "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-S", "-c", COMPARE_ALL, str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"[] {2 * len(registry.names('methods'))}"


def test_the_shape_is_that_of_the_model(benchmark):
    known = SHAPES["llama-3.2-1b"]
    names = {"hidden": "hidden_size", "layers": "num_hidden_layers", "inner": "intermediate_size"}
    names |= {"vocabulary": "vocab_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads"}
    found = {names.get(name, name): value for name, value in benchmark("gpu").LLAMA_1B.items()}
    assert found == {name: known[name] for name in found}
