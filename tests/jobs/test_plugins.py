"""Whose code a task runs, whatever its name is given."""

import pytest

from adaptive_bench.jobs.plugins import named_plugins, needs_own_process


@pytest.mark.parametrize("task", ["nano_qa", "perplexity:letters", "arc_easy"])
def test_tasks_that_are_no_plugins(task):
    assert not needs_own_process(task, "tasks")
    assert named_plugins([], [task]) is None
