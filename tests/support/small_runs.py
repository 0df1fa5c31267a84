"""Fixtures for runs of seconds of a tiny random model in a folder; those of runs and of jobs have them."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.jobs.launchers import LaunchRequest
from adaptive_bench.recipe import EvalRecipe, TrainRecipe
from adaptive_bench.runs.launching import WHOLE, cells_left
from adaptive_bench.runs.run_plan import plan


@pytest.fixture
def config_of(model_folder, tmp_path):
    """`config_of(methods="dense", **changes)`: a run of seconds on the log-likelihood nano task."""

    def make(methods="dense", **changes):
        return run_config(model_folder, tmp_path / "out", methods, **changes)

    return make


def run_config(model, out, methods, /, **changes):
    """A run of seconds on the log-likelihood nano task."""
    train = {"steps": 3, "batch_size": 2, "warmup_steps": 1, "max_length": 400, "checkpoint_every": 1}
    measuring = {"batch_size": 4, "limit": 3, "calibration_examples": 4, "closeness": 0.9}  # asked for as it is
    values = {
        "tasks": ("nano_qa_ll",),
        "model": str(model),
        "out": out,
        "levels": (0.0, 0.3),
        "match_on": "tokens",
        "device": "cpu",
        "train": TrainRecipe(**train | changes.pop("train", {})),
        "evaluation": EvalRecipe(**measuring | changes.pop("evaluation", {})),
    }
    return RunConfig(methods=methods, **values | changes)


def launch_request(config, folder, resources=None):
    """What a launcher is given for all of a run."""
    return LaunchRequest(folder, partial(cells_left, plan(config), WHOLE), list, resources)


def untimed(rows):
    """Rows of a table without how long they took to measure."""
    return [row | {"seconds": None} for row in rows]


@pytest.fixture
def changed_model(model_folder, tmp_path):
    """`changed_model(**config)`: a copy of the tiny model with other values in its config.json."""

    def make(**changes):
        folder = shutil.copytree(model_folder, tmp_path / "changed")
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return folder

    return make


@pytest.fixture
def registered(monkeypatch):
    """`registered(name, method)`: a method that exists for one test."""

    def put(name, method):
        monkeypatch.setitem(registry._registered, ("methods", name), (method, "this test"))

    return put


@pytest.fixture
def eventful_config(config_of, tmp_path, monkeypatch):
    """`eventful_config(events, step, **changes)`: a run with a training for each event of the plugin `eventful.py`."""

    def make(events, step, **changes):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
        monkeypatch.setenv("EVENTS", str(tmp_path))
        monkeypatch.setenv("EVENTS_STEP", str(step))
        registry.load_plugin(Path(__file__).with_name("eventful.py"))
        return config_of(tuple(f"eventful[event={event}]" for event in events), **changes)

    return make
