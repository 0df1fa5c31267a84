"""Commands that read results need nothing but these: no model, data or plugin, and none of the large libraries."""

import json
import os
import resource
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from small_runs import run_config

from adaptive_bench import registry
from adaptive_bench.runs import run

# Python imports a `sitecustomize` that lies on its path before anything else.
WITHOUT_LIBRARIES = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "pandas", "lm_eval", "datasets"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Missing())
"""
PLUGIN = """
from adaptive_bench.methods.random_skip import RandomSkip
from adaptive_bench.registry import register

@register("methods", "own")
class Own(RandomSkip):
    pass
"""
COMMANDS = {
    "status": ("status", "--out", "{out}", "--all"),
    "show": ("show", "{run}"),
    "samples": ("samples", "{run}", "--task", "perplexity:letters"),
    "export as CSV": ("export", "{run}", "-o", "{out}/rows.csv"),
    "export as JSON": ("export", "--out", "{out}", "-o", "{out}/rows.json"),
    "export as Parquet": ("export", "{run}", "-o", "{out}/rows.parquet"),
    "leaderboard": ("leaderboard", "{run}"),
    "leaderboard build": ("leaderboard", "build", "{run}", "-o", "{out}/site"),
    "list runs": ("list", "runs", "--out", "{out}"),
    "list configs": ("list", "configs"),
    "list models": ("list", "models"),
    "list methods": ("list", "methods"),
}
LIBRARIES = "import numpy, pyarrow.parquet, scipy.stats, yaml"  # what reading results cannot do without
MOST = 3.0  # times the processor time of importing those, beside it: no command takes twice that


@pytest.fixture(scope="module")
def left(model_folder, tmp_path_factory):
    """Where a finished run lies whose model, data and plugin are gone, and the hook that keeps libraries away."""
    left = tmp_path_factory.mktemp("readers")
    (left / "plugin.py").write_text(PLUGIN)
    (left / "data" / "letters").mkdir(parents=True)
    for split, count in (("train", 60), ("validation", 3)):
        rows = (json.dumps({"text": f"{split} document number {n} " * 3}) for n in range(count))
        (left / "data" / "letters" / f"{split}.jsonl").write_text("\n".join(rows))
    model = shutil.copytree(model_folder, left / "model")
    asked = {"tasks": ("nano_qa_ll", "perplexity:letters"), "data_dir": left / "data", "train": {"steps": 0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", dict(registry._registered))
        registry.load_plugin(left / "plugin.py")
        assert not run(run_config(model, left / "out", "dense,static_depth,own", **asked), jobs=1).failures
    for gone in ("model", "data"):
        shutil.rmtree(left / gone)
    (left / "plugin.py").unlink()
    (left / "hook").mkdir()
    (left / "hook" / "sitecustomize.py").write_text(WITHOUT_LIBRARIES)
    return left


def _alone(left: Path, name: str) -> tuple[subprocess.CompletedProcess, float]:
    """The process that read a run without its model, data, plugin and libraries, and how many times the processor time
    of importing its libraries it took.
    """
    (folder,) = (left / "out" / "runs").iterdir()
    arguments = [part.format(out=left / "out", run=folder) for part in COMMANDS[name]]
    hooked = {"env": os.environ | {"PYTHONPATH": str(left / "hook")}, "cwd": left}
    done, seconds = _timed("-m", "adaptive_bench", *arguments, **hooked)
    return done, seconds / _libraries_s()


@cache
def _libraries_s() -> float:
    return _timed("-c", LIBRARIES)[1]


def _timed(*arguments: str, **options) -> tuple[subprocess.CompletedProcess, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("name", COMMANDS)
def test_results_are_read_without_what_made_them(left, name):
    done, times = _alone(left, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert times < MOST
    if name == "samples":
        assert "own, saves" in done.stdout and "dense, saves 0.0 % of tokens" in done.stdout
