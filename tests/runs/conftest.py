"""Runs of seconds, and one that is edited."""

from collections.abc import Iterator

import pytest
from edited_world import World
from finished_run import finished, master
from small_runs import changed_model, config_of, eventful_config, registered

from adaptive_bench import registry

__all__ = ["changed_model", "config_of", "eventful_config", "finished", "master", "registered", "world"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A finished run and all that it rests on, to be edited."""
    folder = tmp_path_factory.mktemp("edits") / "world"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        patch.syspath_prepend(folder)
        patch.syspath_prepend(folder / "task")
        made = World(folder)
        made.build()
        yield made
        made.unload()
