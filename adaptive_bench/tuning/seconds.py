"""What a trial took, from the records that it rests on."""

from __future__ import annotations

import json
from collections.abc import Sequence

from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun

TRAINING, EVALUATION = "training", "evaluation"


def seconds_of(sweeps: Sequence[DialEvaluation]) -> dict[str, float]:
    """Seconds of training and of measuring points, as they are in the records.

    A training that several trials share (of early exits that differ at inference alone) is in each of them, and what a
    training starts from is in it. Calibration is in neither.
    """
    trainings = {training.folder: training for sweep in sweeps for training in sweep.training.chain}
    points = [sweep.record.read(f"{saving:g}.json") or {} for sweep in sweeps for saving in sweep.record.savings()]
    return {
        TRAINING: sum(map(_training_s, trainings.values())),
        EVALUATION: float(sum(point.get("wall_s", 0.0) for point in points)),
    }


def _training_s(training: TrainingRun) -> float:
    file = training.folder / "timing.json"  # not sealed: two trainings that are equal differ in it
    if not file.is_file():  # nothing was trained
        return 0.0
    return float(json.loads(file.read_text(encoding="utf-8"))["train_s"])
