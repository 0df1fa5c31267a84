"""Whose code a task runs, whatever its name is given, and in which process that of a method."""

import pytest

from adaptive_bench.jobs.plugins import named_plugins


@pytest.mark.parametrize("task", ["nano_qa", "perplexity:letters", "arc_easy"])
def test_tasks_that_are_no_plugins(task):
    assert named_plugins([], [task]) is None
