"""Measures trained methods on tasks over the range of their dials; points on disk are not measured again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from adaptive_bench import processes
from adaptive_bench.engine.shuffling import DecisionBank
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.hardware import find_batch_size
from adaptive_bench.method import described
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.compression import quantize
from adaptive_bench.model.interventions import collect_decisions, standing_between
from adaptive_bench.model.stored_calibration import POOLED, StoredCalibration
from adaptive_bench.progress import DialCalibrated, PointMeasured, Reporter, SilentReporter
from adaptive_bench.runs.backbone_source import find_device, planned_backbone
from adaptive_bench.runs.training_text import as_planned, check_inputs, draw_calibration
from adaptive_bench.runs.training_work import recorded
from adaptive_bench.runs.work_units import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.manifest import sparing
from adaptive_bench.training.encoding import (
    EncodedExample,
    calibration_batches,
    encode_examples,
    generated_text,
    padding_id,
)

_PROBED_TOKENS = 4_000  # tokens of held-out text on which dial values are probed


def trained_model(sweep: DialEvaluation, **options: Any) -> AdaptiveModel:
    """The model that a sweep evaluates, without the calibration stored beside its weights, which earlier sweeps made.
    Options go to `AdaptiveModel.from_pretrained`.
    """
    options |= sparing(sweep.content)
    return AdaptiveModel.from_pretrained(sweep.training.checkpoint, sweep.spec, calibration=None, **options)


class Calibrated:
    """A trained model under one method spec, calibrated for one sweep at a time; loaded when it is first needed."""

    def __init__(self, sweep: DialEvaluation) -> None:
        self.sweep = sweep  # what it is calibrated for
        self.training, self.spec, self.config = sweep.training, sweep.spec, sweep.config
        self._texts: dict[str, list[EncodedExample]] = {}
        self._calibrated_on: str | None = None
        self._dials: dict[float, list[dict[str, Any]]] = {}
        self._batch_size = self.config.evaluation.batch_size  # gets smaller where memory runs out, and stays so

    @cached_property
    def device(self) -> torch.device:
        return find_device(self.config.device)

    @cached_property
    def model(self) -> AdaptiveModel:
        return quantize(trained_model(self.sweep).to(self.device), self.config.evaluation.quantize)

    @cached_property
    def tokenizer(self) -> Any:
        return planned_backbone(self.config.model, self.training.content["backbone"]).load_tokenizer()

    @property
    def _text(self) -> list[EncodedExample]:
        """Held-out training text of the sweep; the same object for sweeps that share it."""
        key = str(self.sweep.content["calibration_sha256"])
        if key not in self._texts:
            max_length = min(self.config.train.max_length, self.model.backbone.context_length)
            gold = as_planned(draw_calibration(self.config, self.training.seed, self.sweep.task), key)
            chat = self.config.chat_template
            text = encode_examples(gold, self.tokenizer, max_length, SilentReporter(), chat_template=chat)
            if text and self.config.evaluation.calibration_text == "written":
                text = generated_text(self.model, text, self.tokenizer, self._batch_size)
            self._texts[key] = text
        return self._texts[key]

    def calibration(self, savings: Iterable[float], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """What thresholds rest on: the size of the text, and the requested and realised share for each saving.

        Args:
            savings: Savings of this sweep; the model may be calibrated at more savings, for other sweeps.
            before: What an earlier process wrote for the same sweep. Its entries are kept for savings that this process
                did not calibrate.
        """
        recipe = self.config.evaluation
        about = {"text": recipe.calibration_text, "per": recipe.calibration}
        # A text's last token is only a label and never fed.
        size = {"examples": len(self._text), "tokens": sum(len(example.token_ids) - 1 for example in self._text)}
        dials = {saving: self._dials[saving] for saving in savings if saving in self._dials}
        earlier = [] if before is None else [entry for entry in before["dials"] if entry["saving"] not in dials]
        entries = [*({"saving": saving, **dial} for saving, found in dials.items() for dial in found), *earlier]
        return about | size | {"dials": sorted(entries, key=lambda entry: entry["saving"])}

    @property
    def has_text(self) -> bool:
        """Whether there is held-out training text; a run that trains nothing may have none."""
        return bool(self._text)

    def _need_text(self, what: str) -> None:
        if not self.has_text:
            raise UsageError(
                f"{what} held-out training text, but {', '.join(self.config.tasks)} has none. Name a task that has "
                f"some with --train-on, for example --train-on nano_math."
            )

    def probe(self, saving: float, reporter: Reporter) -> dict[str, float | None]:
        """The saving measured on some held-out text when the dial is set for `saving`, by axis."""
        self.calibrate([saving], reporter)
        size = sum(len(one.token_ids) for one in self._text)
        # Every n-th example, with n rounded up, so that all tasks of the text stay.
        some = self._text[:: -(-size // _PROBED_TOKENS)]
        self.model.dial = self.model.method.checked_dial(saving)
        self.model.reset_ledger()
        with torch.no_grad():
            for batch in calibration_batches(some, padding_id(self.tokenizer), self._batch_size, self.device):
                self.model(**batch, logits_to_keep=1, phase="decode")  # only its decisions count
        saved: dict[str, float | None] = self.model.compute_report()["saved"]
        self.model.reset_ledger()
        return saved

    def calibrate(self, savings: Sequence[float], reporter: Reporter) -> None:
        """Calibrate the dial values of some savings for the sweep's task, unless that is done already."""
        if not self.model.needs_calibration:
            return
        if self._calibrated_on != (text := str(self.sweep.content["calibration_sha256"])):
            self.model.forget_calibration()
            self._calibrated_on, self._dials = text, {}
        missing = [saving for saving in savings if saving not in self._dials]
        if not missing:
            return
        self._need_text(f"Calibrating {self.spec} needs")
        with reporter.task(f"calibrate {self.spec}", total=len(missing)) as task:
            for saving in missing:
                self._dials[saving], self._batch_size = find_batch_size(
                    f"calibrate {self.spec}", partial(self._calibrate, saving), self._batch_size, reporter
                )
                reporter.emit(DialCalibrated(str(self.sweep.folder)))
                task.advance(1)

    def reached(self, end: float, reporter: Reporter) -> float:
        """The share of the text's tokens that the end of the dial skips.

        It can be smaller than `end`: an exit that leaves prompts alone never skips all tokens, and asking for more
        gives the same dial value.
        """
        self.calibrate([end], reporter)
        # Rounded down to the six decimals of savings in records: rounded up it could not be reached.
        return min([end, *(math.floor(1e6 * dial["realised"]) / 1e6 for dial in self._dials.get(end, []))])

    def collect_decisions(self, reporter: Reporter) -> DecisionBank:
        """Collect the decisions for every token of the calibration text at the present dial value."""
        self._need_text("Shuffled decisions are drawn from those of")

        def at(batch_size: int) -> DecisionBank:
            batches = calibration_batches(self._text, padding_id(self.tokenizer), batch_size, self.device)
            return collect_decisions(self.model, batches)

        bank, self._batch_size = find_batch_size(f"shuffle {self.spec}", at, self._batch_size, reporter)
        return bank

    def store(self, saving: float) -> None:
        """Make the checkpoint a model that skips as soon as `AdaptiveModel.from_pretrained` loads it.

        It gets the calibration and the dial value for this saving, unless they are of quantized weights, which are not
        those stored here.
        """
        recipe = self.config.evaluation
        if self.model.needs_calibration and recipe.quantize == "none":
            name = self.sweep.task if recipe.calibration == "task" else POOLED
            text = f"{recipe.calibration_text} {self.sweep.content['calibration_sha256']}"
            self.model.store_calibration(self.training.checkpoint, name, {saving: self.model.dial}, text)

    def _calibrate(self, saving: float, batch_size: int) -> list[dict[str, Any]]:
        """Calibrate one saving and report its dial values."""
        batches = calibration_batches(self._text, padding_id(self.tokenizer), batch_size, self.device)
        return list(self.model.calibrate(batches, [saving])["dials"])


def evaluate_sweeps(
    sweeps: Sequence[DialEvaluation],
    reporter: Reporter,
    attempting: Callable[[DialEvaluation], AbstractContextManager[None]],
) -> None:
    """Measure what is missing in some sweeps that share a method spec and a training; one model serves them all. The
    next sweep still runs if `attempting`, which is entered for each, handles the error of one.
    """
    trained = Calibrated(sweeps[0])
    for sweep in sweeps:
        trained.sweep = sweep
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
    # A control is measured where its method was, so it needs neither an end nor dials of its own.
    if trained.has_text and not sweep.variant:
        end = trained.reached(end, reporter)
        # The savings that probing starts at. All of them first: what a solved dial is depends on those solved before.
        trained.calibrate(sorted({round(min(level, end), 6) for level in sweep.levels}), reporter)
    record.write("dial", about | {"max_saved_tokens": end, "eligible": eligible})
    asked: list[float] = []

    def probe(saving: float) -> dict[str, float | None]:
        if (known := record.probe(saving)) is not None:
            return known
        record.add_probe(saving, trained.probe(saving, reporter) if trained.has_text else None)
        return probe(saving)  # from the record, like a sweep that is resumed

    def measure(saving: float) -> Evaluation:
        if (known := record.point(saving)) is not None:
            return known
        probes = record.read("probes") or {"saved": {}}
        # Probed savings are calibrated too, so that a resumed sweep stores the same checkpoint as an uninterrupted one.
        trained.calibrate([*map(float, probes["saved"]), saving], reporter)
        asked.append(saving)
        record.write("calibration", trained.calibration(asked, record.read("calibration")))
        model.dial = model.method.checked_dial(saving)
        trained.store(saving)
        start_s = time.perf_counter()
        bank = trained.collect_decisions(reporter) if sweep.variant == "shuffled" else None
        # What this process has calibrated, for processes that share the evaluation and have not.
        calibrated = StoredCalibration.of(model.method, {saving: model.dial}, sweep.content["calibration_sha256"])
        with processes.world().broadcast_job("evaluate", sweep, model.dial, calibrated, bank):
            evaluation, samples = _evaluate_at(sweep, trained, bank, reporter)
        # The task's files may have been edited since the plan was made; such a point is not recorded.
        check_inputs(sweep.task, sweep.config.data_dir, sweep.content)
        record.add_point(saving, evaluation, samples, wall_s=time.perf_counter() - start_s)
        reporter.emit(PointMeasured(str(sweep.folder)))
        return evaluation

    if sweep.walk(measure, probe, end) is None:
        raise EnvironmentProblem(
            f"Shuffled decisions are measured at the method's own points, but `{sweep.own}` is not finished. Give the "
            f"run's command again once it is."
        )


def _evaluate_at(
    sweep: DialEvaluation, trained: Calibrated, bank: DecisionBank | None, reporter: Reporter
) -> tuple[Evaluation, list[Sample]]:
    """Evaluate the model at its present dial value, with its own decisions or those of a bank."""
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
    """Takes part, in a worker process, in the evaluations that the main process begins."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, MethodSpec], Calibrated] = {}  # one model at a time

    def __call__(
        self,
        sweep: DialEvaluation,
        dial: float,
        calibrated: StoredCalibration,
        bank: DecisionBank | None,
    ) -> None:
        """Evaluate at one dial value, as calibrated by the main process."""
        key = sweep.training.folder, sweep.spec
        if key not in self._known:
            self._known.clear()
            self._known[key] = Calibrated(sweep)
        trained = self._known[key]
        calibrated.give_to(trained.model.method)
        trained.model.dial = dial
        _evaluate_at(sweep, trained, bank, SilentReporter())
