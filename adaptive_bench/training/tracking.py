"""Sends training curves to TensorBoard, trackio or Weights & Biases, besides the log that every training keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate.tracking import GeneralTracker, TensorBoardTracker, TrackioTracker, WandBTracker

from adaptive_bench.errors import UsageError

_PROJECT = "adaptive-bench"


@dataclass(frozen=True)
class Tracking:
    """The destinations of a training's curves.

    Attributes:
        names: Trackers: `tensorboard`, `trackio`, `wandb`; none by default.
        run, title: The training's id, under which a resumed one continues, and its title.
        folder: Folder for trackers that write files.
        about: Settings shown beside the curves.
    """

    names: tuple[str, ...] = ()
    run: str = ""
    title: str = ""
    folder: Path = Path()
    about: Mapping[str, str | int | float] = field(default_factory=dict)

    @contextmanager
    def begun(self, steps_done: int) -> Iterator[tuple[GeneralTracker, ...]]:
        """The trackers, ready for the step after `steps_done`."""
        trackers = tuple(self._tracker(name, steps_done) for name in self.names)
        for tracker in trackers:
            tracker.start()
            if not isinstance(tracker, TensorBoardTracker):  # TensorBoard would create another folder at every start
                tracker.store_init_configuration(dict(self.about))
        try:
            yield trackers
        finally:
            for tracker in trackers:
                tracker.finish()

    def _tracker(self, name: str, steps_done: int) -> GeneralTracker:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        match name:
            case "tensorboard":  # what was logged after the checkpoint is logged again
                return TensorBoardTracker(f"{self.title} {self.run}", folder, purge_step=steps_done + 1)
            case "wandb":
                return WandBTracker(_PROJECT, id=self.run, name=self.title, resume="allow", dir=str(folder))
            case _:
                return TrackioTracker(_PROJECT, name=f"{self.title} {self.run}", resume="allow")


def check_trackers(names: tuple[str, ...]) -> None:
    """Check that the packages of the trackers are installed; a `UsageError` if one is missing."""
    for name in names:
        if find_spec(name) is None:
            raise UsageError(
                f"--track {name} needs the package {name!r}, which is not installed. Install it with `pip install "
                f"'adaptive-bench[{name}]'`, or leave --track out: curves are in each record's train.jsonl anyway."
            )


def values_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log entry, one for each curve."""
    terms = {f"terms/{name}": value for name, value in entry["terms"].items()}
    return {key: entry[key] for key in ("loss", "lr", "gradient_norm", "tokens")} | terms
