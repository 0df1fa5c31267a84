"""Sweeps a method's dial on tasks; what is on disk of it is picked up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor

from adaptive_bench import processes
from adaptive_bench.engine.shuffling import DecisionBank
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.method import described
from adaptive_bench.model.interventions import standing_between
from adaptive_bench.progress import PointMeasured, Reporter, SilentReporter
from adaptive_bench.runs.planning.task_inputs import check_inputs
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.calibrated import Calibrated
from adaptive_bench.runs.work.recording import recorded
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.lock import exclusive


def evaluate_sweeps(
    sweeps: Sequence[DialEvaluation],
    reporter: Reporter,
    attempting: Callable[[DialEvaluation], AbstractContextManager[None]],
) -> None:
    """Measure what is missing of some sweeps that share a method spec and a training; one model serves them all.

    Args:
        attempting: Entered for each sweep; where it takes an error for itself, the next sweep goes on.
    """
    trained = Calibrated(sweeps[0])
    for sweep in sweeps:
        trained.set_sweep(sweep)
        with attempting(sweep), exclusive(sweep.folder, str(sweep), reporter):
            if sweep.finished() is None:
                with recorded(sweep, sweep.config, reporter) as said:
                    _measure(sweep, trained, said)


def _measure(sweep: DialEvaluation, trained: Calibrated, reporter: Reporter) -> None:
    model, record = trained.model, sweep.record
    dial = model.method.dial
    about = {"name": dial.name, "minimum": dial.minimum, "maximum": dial.maximum, "skip_nothing": dial.skip_nothing}
    end, eligible = model.method.max_saving, described(model.method.skippable_sites)
    eligible += ", but no first token" if model.method.keep_first else ""
    if trained.has_text and not sweep.variant:
        end = trained.reached(end, reporter)
        compared = sorted({round(min(level, end), 6) for level in sweep.levels})  # where probing begins
        trained.calibrate(compared, reporter)
        record.write("behaviour", {"sha256": trained.behaviour(compared)})
    record.write("dial", about | {"max_saved_tokens": end, "eligible": eligible})
    asked: list[float] = []

    def probe(saving: float) -> dict[str, float | None]:
        if (known := record.probe(saving)) is not None:
            return known
        record.add_probe(saving, trained.probe(saving, reporter) if trained.has_text else None)
        return probe(saving)

    def measure(saving: float) -> Evaluation:
        if (known := record.point(saving)) is not None:
            return known
        probes = record.read("probes") or {"saved": {}}
        trained.calibrate([*map(float, probes["saved"]), saving], reporter)  # a checkpoint keeps them, resumed or not
        asked.append(saving)
        record.write("calibration", trained.calibration(asked, record.read("calibration")))
        model.dial = model.method.checked_dial(saving)
        trained.store(saving)
        start_s = time.perf_counter()
        thresholds = None if model.method.thresholds is None else model.method.thresholds.state()
        fitted = None if model.method.fitted is None else model.method.fitted.state()
        bank = trained.collect_decisions(reporter) if sweep.variant == "shuffled" else None
        with processes.world().broadcast_job("evaluate", sweep, model.dial, thresholds, fitted, bank):
            evaluation, samples = _ask(sweep, trained, bank, reporter)
        check_inputs(sweep.task, sweep.config.data_dir, sweep.content)
        record.add_point(saving, evaluation, samples, wall_s=time.perf_counter() - start_s)
        reporter.emit(PointMeasured(str(sweep.folder)))
        return evaluation

    if sweep.walk(measure, probe, end) is None:
        raise EnvironmentProblem(
            f"Shuffled decisions are measured where the method itself was, but `{sweep.own}` is not finished. Give the "
            f"run's command again once it is."
        )


def _ask(
    sweep: DialEvaluation, trained: Calibrated, bank: DecisionBank | None, reporter: Reporter
) -> tuple[Evaluation, list[Sample]]:
    """The model's answers as its dial stands, with its own decisions or those of a bank."""
    recipe = sweep.config.evaluation
    with standing_between(trained.model, bank):
        return evaluate(
            trained.model,
            trained.tokenizer,
            sweep.task,
            data_dir=sweep.config.data_dir,
            split=sweep.split,
            limit=recipe.limit,
            chat_template=sweep.config.chat_template,
            **recipe.asking,
            progress=reporter,
        )


class EvaluationWorker:
    """Takes part in evaluations that the main process has begun."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, MethodSpec], Calibrated] = {}

    def __call__(
        self,
        sweep: DialEvaluation,
        dial: float,
        thresholds: dict[str, Tensor] | None,
        fitted: dict[str, Tensor] | None,
        bank: DecisionBank | None,
    ) -> None:
        """Evaluate at one dial value, as calibrated by the main process."""
        key = sweep.training.folder, sweep.spec
        if key not in self._known:
            self._known.clear()  # one model at a time
            self._known[key] = Calibrated(sweep)
        trained = self._known[key]
        if thresholds:
            assert trained.model.method.thresholds is not None
            trained.model.method.thresholds.load(thresholds)
        if fitted:
            assert trained.model.method.fitted is not None
            trained.model.method.fitted.load(fitted)
        trained.model.dial = dial
        _ask(sweep, trained, bank, SilentReporter())
