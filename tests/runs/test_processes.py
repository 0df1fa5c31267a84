"""A whole run by two processes that torchrun starts: the results of one process, written once."""

import subprocess
import sys

import pytest

from adaptive_bench.runs import plan, run
from adaptive_bench.store.records import Record

pytestmark = pytest.mark.slow

CHILD = r"""
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.methods.dense import Dense
from adaptive_bench.runs import run

@registry.register("methods", "mine")
class Mine(Dense):
    @classmethod
    def training_spec(cls, config, spec):
        return spec

for line in Path(sys.argv[1]).read_text().splitlines():
    outcome = run(RunConfig.model_validate_json(line))
    sys.stdout.write(f"failures: {list(map(str, outcome.failures))} main: {outcome.is_main_process}\n")  # at one stroke
    sys.stdout.flush()
torch.distributed.destroy_process_group()
"""
TIMES = {"wall_s", "time_s", "time_per_token_s"}
OF_TOKENS = ("tokens", "core", "net")


def of_tokens(point):
    """A point without what depends on who shares a batch: padding, and weights read in each call."""
    about, samples = point
    savings = {axis: about["savings"][axis] for axis in OF_TOKENS}
    return about | {"savings": savings, "report": about["report"]["sites"]}, samples


def points(config):
    """Every measured point and its samples, times aside."""
    found = {}
    for sweep in plan(config).sweeps:
        for saving, point in sweep.record.read("points").items():
            about = {key: value for key, value in point.items() if key not in TIMES}
            found[str(sweep), saving] = about, sweep.record.samples(float(saving))
    return found


def names(folder):
    """Files of the records."""
    return sorted(str(path.relative_to(folder)) for path in (folder / "records").rglob("*"))


def test_evaluation_by_two_processes_is_that_of_one(config_of, tmp_path):
    asked = {"limit": 12, "calibration_examples": 6, "batch_size": 4}
    shared = {"tasks": ("nano_qa_ll", "nano_qa"), "evaluation": asked}
    methods = "dense,random_skip,random_skip[compensate=scale],gateskip,gateskip@paper,mod@paper"
    as_is = {"methods": methods, "train": {"steps": 0}, "shuffled": True, **shared}
    picked = "static_depth[rule=bi,trained=true]"  # before training, by the main process
    trained = {"methods": f"gateskip,{picked},mine,dense", "train": {"steps": 4, "batch_size": 4}, **shared}
    script, configs = tmp_path / "child.py", tmp_path / "configs"
    script.write_text(CHILD)
    together = [config_of(**settings, out=tmp_path / "two") for settings in (as_is, trained)]
    configs.write_text("".join(config.model_dump_json() + "\n" for config in together))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*start, script, configs], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("failures: [] main: False") == 2  # the worker has nothing to say
    assert "train mine, seed 1: Usage error: A method trained in several processes" in done.stdout

    alone = config_of(**as_is, out=tmp_path / "one")
    run(alone, jobs=1)
    found, wanted = points(together[0]), points(alone)
    assert len(wanted) == 26 and found.keys() == wanted.keys()
    for (sweep, name), point in wanted.items():
        if "nano_qa," in sweep and "@paper" not in sweep:  # greedy texts of causal methods: batches come as they come
            assert of_tokens(found[sweep, name]) == of_tokens(point)
        else:
            assert found[sweep, name] == point
    assert names(tmp_path / "one") == [name for name in names(tmp_path / "two") if (tmp_path / "one" / name).exists()]
    states, steps = {}, {}
    for record in (tmp_path / "two" / "records").iterdir():
        about = Record(record).read("config")
        if about["recipe"]["steps"]:
            states[about["method"]] = Record(record).read("status")["state"]
            log = record / "train.jsonl"
            steps[about["method"]] = len(log.read_text().splitlines()) if log.is_file() else 0
    assert states == {"gateskip": "done", picked: "done", "mine": "failed", "dense": "done"}
    assert steps == {"gateskip": 4, picked: 4, "mine": 0, "dense": 4}
