"""Processes beside a study: they work with it, say what fails, and end with it."""

import time

import pytest
import torch

from adaptive_bench.config_file import load_config
from adaptive_bench.tuning import Objective, tune
from adaptive_bench.tuning.helpers import helped


def count_threads_and_fail(reporter):
    reporter.line(f"threads {torch.get_num_threads()}")
    raise ValueError("it burns")


def work_for_ever(reporter):
    time.sleep(600)


def test_they_work_with_their_share_of_the_cores_and_say_why_they_fail(monkeypatch, lines):
    """The block goes on."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    shares = []
    monkeypatch.setattr(torch, "set_num_threads", shares.append)
    with helped(1, lines, count_threads_and_fail):
        done = True
    assert done and shares == [2, 4]
    assert lines.lines == ["threads 2", "A process that helped with the study has ended: it burns"]


@pytest.mark.slow
def test_they_end_where_the_block_is_stopped(lines):
    start_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt), helped(1, lines, work_for_ever):
        raise KeyboardInterrupt
    assert time.monotonic() - start_s < 60  # ten seconds to keep where it stands, and the start of a process


def test_a_study_has_its_trials_done_once_each(tmp_path):
    values = {"methods": "gateskip", "tasks": "nano_qa_ll", "out": tmp_path, "match_on": "tokens", "device": "cpu"}
    params = ["sparsity_weight=log:1e-3:1"]
    result = tune(load_config("smoke", values), Objective.parse("area"), 3, params, name="ours", workers=2)
    assert [trial.state for trial in result.trials] == ["complete"] * 3
    assert len({trial.spec for trial in result.trials}) == 3
