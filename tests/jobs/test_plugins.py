"""Whose code a task runs, whatever its name is given."""

from adaptive_bench.jobs.job import named_plugins


def test_tasks_that_are_no_plugins():
    assert named_plugins([], ["nano_qa", "perplexity:letters", "arc_easy"]) is None
