"""What a trial took, from the records that it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.runs.planning.works import DialEvaluation

TRAINING, EVALUATION = "training", "evaluation"


def seconds_of(sweeps: Sequence[DialEvaluation]) -> dict[str, float]:
    """Seconds of training and of measuring points, as they are in the records.

    A training that several trials share (of early exits that differ at inference alone) is in each of them, and what a
    training starts from is in it. Calibration is in neither.
    """
    trainings = {training.folder: training for sweep in sweeps for training in sweep.training.chain}
    records = [sweep.record for sweep in sweeps]
    return {
        TRAINING: sum((one.record.read("timing") or {}).get("train_s", 0.0) for one in trainings.values()),
        EVALUATION: sum(record.measuring_s(saving) for record in records for saving in record.savings()),
    }
