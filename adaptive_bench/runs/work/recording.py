"""What work leaves in its record beside its results: its state, what it was made with, and what it said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from adaptive_bench import stopping
from adaptive_bench.backbone.weights import library_versions
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import Superseded
from adaptive_bench.model.hardware import environment
from adaptive_bench.progress import Event, Line, Reporter, TaskAdvanced, TaskStarted
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.source import check_code, commit
from adaptive_bench.store.records import Record
from adaptive_bench.tables.made_with import FACTS
from adaptive_bench.training.loop import RESUME_FOLDER
from adaptive_bench.training.tracking import Tracking


class RecordedReporter(Reporter):
    """Says what the work is about before everything it passes on, and keeps the lines in the record's log. Work ends
    here that was asked to stop: what is counted is kept.
    """

    def __init__(self, reporter: Reporter, record: Record, about: str) -> None:
        self._reporter, self._record, self._about = reporter, record, about

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        match event:
            case Line(text):
                self._record.log(text)
                event = Line(f"{self._about}: {text}")
            case TaskStarted():
                event = replace(event, label=f"{self._about}: {event.label}")
        self._reporter.emit(event)
        if isinstance(event, TaskAdvanced):
            stopping.check()


@contextmanager
def recorded(work: TrainingRun | DialEvaluation, config: RunConfig, reporter: Reporter) -> Iterator[Reporter]:
    """Keep the state of some work on disk, whatever becomes of it; unless somebody else has taken it over. In the block
    it tells the reporter how it goes.

    Raises:
        EnvironmentProblem: The code that it runs has changed since it was planned.
    """
    record, seed = work.record, work.seed if isinstance(work, TrainingRun) else work.training.seed
    check_code(work.spec.name, "training" if isinstance(work, TrainingRun) else "evaluation", work.content["code"])
    record.begin(work.content)
    used = library_versions(config.evaluation.quantize) if isinstance(work, DialEvaluation) else {}
    record.write("env", _environments(record, find_device(config.device)) | used | commit())
    try:
        yield RecordedReporter(reporter, record, f"seed {seed}")
    except Superseded:
        raise
    except Exception as error:
        record.fail(error)
        raise
    except BaseException:
        record.move("partial")
        raise
    record.move("done")


def _environments(record: Record, device: torch.device) -> dict[str, Any]:
    """Versions and hardware of this process, and `before` it those of the processes whose work it goes on with."""
    about, known = environment(device), record.read("env")
    goes_on = (record.folder / RESUME_FOLDER).is_dir() or bool(record.read("points"))
    if known is None or not goes_on:
        return about
    earlier = [{name: one.get(name) for name in FACTS} for one in (*known.get("before", ()), known, about)]
    before = [one for place, one in enumerate(earlier) if one != earlier[-1] and one not in earlier[:place]]
    return about | ({"before": before} if before else {})


def curves_of(training: TrainingRun, config: RunConfig) -> Tracking:
    """Where the curves of a training are shown."""
    about: dict[str, str | int | float] = {"method": str(training.spec), "seed": training.seed}
    about |= {"model": config.model, "record": training.folder.name}
    title = f"{training.spec}{training.about_target}, seed {training.seed}"
    return Tracking(config.track, training.folder.name, title, config.out / "tracking", about)
