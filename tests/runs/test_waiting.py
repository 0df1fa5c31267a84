"""A table that waits for work that others do."""

import threading
import time

import pytest

from adaptive_bench import stopping
from adaptive_bench.errors import ToBeContinued
from adaptive_bench.runs import Shard, plan, run
from adaptive_bench.runs import launching as waiting
from adaptive_bench.runs.launching import wait_for_others
from adaptive_bench.store.lock import exclusive


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(waiting, "_LOOK_S", 0.05)


def test_a_table_is_written_when_the_last_cell_is_done(config_of, lines):
    config = config_of("dense,gateskip")
    first, second = (Shard(cells=(training.folder.name,)) for training in plan(config).trainings)
    run(config, shard=first)
    other = threading.Thread(target=lambda: run(config, shard=second), daemon=True)
    other.start()
    outcome = run(config, lines, table_only=True, wait_s=600)
    other.join()
    assert outcome.failures == [] and {row["method"] for row in outcome.rows} == {"dense", "gateskip"}
    assert any("Waiting for 1 pieces of work" in line for line in lines.lines)


def test_what_nobody_is_at_is_given_up(config_of, lines):
    config = config_of("dense,gateskip")
    run(config, shard=Shard(cells=(plan(config).trainings[0].folder.name,)))
    outcome = run(config, lines, table_only=True, wait_s=0.2)
    assert len(outcome.failures) == 1 and {row["method"] for row in outcome.rows} == {"dense"}
    assert any("No process has worked on what is left" in line for line in lines.lines)


def test_what_somebody_is_at_is_waited_for_however_long(config_of, lines):
    whole = plan(config_of("dense"))
    with exclusive(whole.trainings[0].folder, "it", lines):
        waiter = threading.Thread(
            target=wait_for_others, args=(whole, whole.config.out / "runs/mine", lines, 0.1), daemon=True
        )
        waiter.start()
        waiter.join(1)
        assert waiter.is_alive()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_table_that_waits_can_be_stopped(config_of):
    threading.Thread(target=lambda: time.sleep(0.5) or stopping.request(), daemon=True).start()
    with pytest.raises(ToBeContinued):
        run(config_of("dense"), table_only=True, wait_s=600)
