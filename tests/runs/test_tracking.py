"""Training curves for others: only when asked for, and without any effect on what is computed."""

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.runs import plan, run
from adaptive_bench.runs.conditions import run_name
from adaptive_bench.training import tracking


class Kept:
    """A tracker that remembers."""

    def __init__(self):
        self.values, self.said, self.events = {}, {}, []

    def start(self):
        self.events.append("start")

    def store_init_configuration(self, values):
        self.said |= values

    def log(self, values, step):
        self.values[step] = values

    def finish(self):
        self.events.append("finish")


@pytest.fixture
def kept(monkeypatch):
    tracker = Kept()
    monkeypatch.setattr(tracking, "find_spec", lambda name: name)
    monkeypatch.setattr(tracking.Tracking, "_tracker", lambda self, name, done: tracker)
    return tracker


def test_every_step_is_tracked(config_of, kept):
    config = config_of("gateskip", track="wandb")
    assert run(config).exit_code == 0
    assert sorted(kept.values) == [1, 2, 3] and kept.events == ["start", "finish"]
    assert {"loss", "lr", "gradient_norm", "tokens"} < set(kept.values[1])
    assert kept.said["record"] == plan(config).trainings[0].folder.name


def test_nothing_is_tracked_by_default_and_tracking_is_in_no_key(config_of, kept):
    config = config_of("dense")
    run(config)
    assert kept.events == []
    tracked = config_of("dense", track=("tensorboard", "trackio"))
    assert run_name(tracked) == run_name(config)
    assert [training.folder for training in plan(tracked).trainings] == [
        training.folder for training in plan(config).trainings
    ]


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_done(config_of, monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    config = config_of("dense", track="trackio")
    with pytest.raises(UsageError, match=r"adaptive-bench\[trackio\]"):
        run(config)
    assert not (config.out / "records").exists()


def test_tensorboard_shows_the_curve_of_a_resumed_training_once(config_of):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = config_of("dense", track="tensorboard")
    assert run(config).exit_code == 0
    (folder,) = (path for path in (config.out / "tracking" / "tensorboard").iterdir())
    found = EventAccumulator(str(folder))
    found.Reload()
    assert [event.step for event in found.Scalars("loss")] == [1, 2, 3]
