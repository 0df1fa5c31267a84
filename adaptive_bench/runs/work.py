"""The two kinds of work of a run: train a cell, sweep a method's dial on a task. Both pick up what is on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache
from filelock import FileLock, Timeout
from transformers import PreTrainedModel

from adaptive_bench import atomic
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import add_tokenizer
from adaptive_bench.model.stored_calibration import POOLED
from adaptive_bench.model.twins import behaviour
from adaptive_bench.progress import Meter, Reporter, SilentReporter
from adaptive_bench.runs.backbones import find_backbone, find_device
from adaptive_bench.runs.keys import SCHEMA
from adaptive_bench.runs.plan import Cell, Sweep
from adaptive_bench.runs.records import Record, RecordedReporter, environment
from adaptive_bench.runs.training_text import draw_calibration, draw_training
from adaptive_bench.training import calibration_batches, encode_examples, train
from adaptive_bench.training.encoding import EncodedExample, calibration_batch, padding_id
from adaptive_bench.training.gradient import ran_out_of_memory

_TWIN_TEXTS = 8  # held-out examples on which specs are compared


def train_cell(cell: Cell, config: RunConfig, reporter: Reporter) -> None:
    """Train a cell, unless it is trained already or another process is just doing it.

    Raises:
        EnvironmentProblem: What it starts from is not trained.
    """
    if cell.base is not None and not cell.base.finished:
        raise EnvironmentProblem(f"it starts from `{cell.base}`, which failed.")
    with _alone(cell.folder, str(cell), reporter):
        if cell.finished:
            return
        device = find_device(config.device)
        with _recorded(cell.record, cell.content, device):
            said = RecordedReporter(reporter, cell.record, f"seed {cell.seed}")
            source = find_backbone(config.model)
            backbone = source.load_model() if cell.base is None else _trained_backbone(cell.base)
            model = AdaptiveModel.build(backbone, cell.spec, seed=cell.seed).to(device)
            text = draw_training(config, cell.seed, SilentReporter())
            tokenizer = source.load_tokenizer()
            train(model, text, tokenizer, config.train, seed=cell.seed, folder=cell.folder, reporter=said)
            add_tokenizer(cell.checkpoint, tokenizer)


def _trained_backbone(cell: Cell) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(cell.checkpoint, calibration=None).backbone_model


def evaluate_sweeps(sweeps: Sequence[Sweep], reporter: Reporter, overall: Meter) -> None:
    """Measure what is missing of some sweeps that share a method spec and a training; one model serves them all.

    Args:
        overall: Advanced by one for each point of `Sweep.points_left`.
    """
    trained = _Trained(sweeps[0])
    for sweep in sweeps:
        with _alone(sweep.folder, str(sweep), reporter):
            if sweep.finished() is None:
                with _recorded(sweep.record, sweep.content, trained.device):
                    said = RecordedReporter(reporter, sweep.record, f"seed {sweep.cell.seed}")
                    _measure(sweep, trained, said, overall)


def _measure(sweep: Sweep, trained: _Trained, reporter: Reporter, overall: Meter) -> None:
    model, record, left = trained.model, sweep.record, sweep.points_left()
    dial = model.method.dial
    about = {"name": dial.name, "minimum": dial.minimum, "maximum": dial.maximum, "skip_nothing": dial.skip_nothing}
    atomic.write_json(record.folder / "dial.json", about | {"max_saved_tokens": model.method.max_saved_tokens})
    trained.calibrate(sweep.first_savings(model.method), reporter)
    if trained.has_text:
        atomic.write_json(record.folder / "behaviour.json", {"schema": SCHEMA, "sha256": trained.behaviour})

    def measure(saving: float) -> Evaluation:
        nonlocal left
        if (known := record.point(saving)) is not None:
            return known
        trained.calibrate([saving], reporter)
        atomic.write_json(record.folder / "calibration.json", {"schema": SCHEMA, "dials": trained.calibration})
        model.dial = model.method.dial_for(saving)
        trained.store(saving, text=sweep.content["calibration"])
        recipe = sweep.config.evaluation
        start_s = time.perf_counter()
        evaluation, samples = evaluate(
            model,
            trained.tokenizer,
            sweep.task,
            data_dir=sweep.config.data_dir,
            limit=recipe.limit,
            num_fewshot=recipe.num_fewshot,
            batch_size=recipe.batch_size,
            progress=reporter,
        )
        record.add_point(saving, evaluation, samples, wall_s=time.perf_counter() - start_s)
        if left > 0:
            left -= 1
            overall.advance(1)
        return evaluation

    sweep.walk(measure, model.method)
    overall.advance(left)


class _Trained:
    """A trained cell under one method spec; loaded when it is first needed."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self.cell, self.spec, self.config = sweep.cell, sweep.spec, sweep.config
        self.calibration: list[dict[str, Any]] = []
        self._calibrated: set[float] = set()
        self._batch_size = self.config.evaluation.batch_size

    @cached_property
    def device(self) -> torch.device:
        return find_device(self.config.device)

    @cached_property
    def model(self) -> AdaptiveModel:
        # What is stored beside the weights depends on earlier sweeps; a record must not.
        return AdaptiveModel.from_pretrained(self.cell.checkpoint, self.spec, calibration=None).to(self.device)

    @cached_property
    def tokenizer(self) -> Any:
        return find_backbone(self.config.model).load_tokenizer()

    @cached_property
    def _calibration_text(self) -> list[EncodedExample]:
        max_length = min(self.config.train.max_length, self.model.backbone.context_length)
        text = draw_calibration(self.config, self.cell.seed)
        return encode_examples(text, self.tokenizer, max_length, SilentReporter())

    @property
    def has_text(self) -> bool:
        """Whether there is held-out training text; runs that train nothing may have none."""
        return bool(self._calibration_text)

    @cached_property
    def behaviour(self) -> str:
        """Digest of what the model does with some held-out text at the recipe's savings, each calibrated before."""
        batch = calibration_batch(self._calibration_text[:_TWIN_TEXTS], padding_id(self.tokenizer), self.device)
        savings = self._sweep.first_savings(self.model.method)
        return behaviour(self.model, batch, [self.model.method.dial_for(saving) for saving in savings])

    def calibrate(self, savings: Sequence[float], reporter: Reporter) -> None:
        """Make the dial values of some savings ready, each once."""
        if not self.model.needs_calibration:
            return
        missing = [saving for saving in savings if saving not in self._calibrated]
        if not missing:
            return
        if not self.has_text:
            raise UsageError(
                f"Calibrating {self.spec} needs held-out training text, but {', '.join(self.config.tasks)} has none. "
                f"Name a task that has with --train-on, for example --train-on nano_math."
            )
        with reporter.task(f"calibrate {self.spec}", total=len(missing)) as meter:
            for saving in missing:
                while (found := self._calibrate(saving)) is None:
                    self._batch_size //= 2
                    clear_device_cache(garbage_collection=True)
                    reporter.line(f"calibrate {self.spec}: out of memory; now {self._batch_size} sequence(s) at a time")
                self.calibration += found
                self._calibrated.add(saving)
                meter.advance(1)

    def store(self, saving: float, *, text: str) -> None:
        """Make the checkpoint a model that skips as soon as it is loaded: `AdaptiveModel.from_pretrained` of it gets
        what is calibrated, the dial value chosen for a saving, and the tokenizer.
        """
        add_tokenizer(self.cell.checkpoint, self.tokenizer)  # of a training by an earlier version
        if self.model.needs_calibration:
            self.model.store_calibration(self.cell.checkpoint, POOLED, {saving: self.model.dial}, text)

    def _calibrate(self, saving: float) -> list[dict[str, Any]] | None:
        """The report of one saving, or `None` if memory ran out and the batch can be made smaller."""
        pad_id = padding_id(self.tokenizer)
        batches = calibration_batches(self._calibration_text, pad_id, self._batch_size, self.device)
        try:
            return list(self.model.calibrate(batches, [saving])["dials"])
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error) or self._batch_size == 1:
                raise
        return None


@contextmanager
def _alone(folder: Path, what: str, reporter: Reporter) -> Iterator[None]:
    """Hold a folder against other processes; the lock of a killed process is free again."""
    with atomic.writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            reporter.line(f"{what}: another process is at it, waiting for its result")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _recorded(record: Record, content: Mapping[str, Any], device: torch.device) -> Iterator[None]:
    """Keep the state of some work on disk, whatever becomes of it."""
    record.begin(content)
    atomic.write_json(record.folder / "env.json", environment(str(device), torch.get_num_threads()))
    try:
        yield
    except Exception as error:
        record.fail(error)
        raise
    except BaseException:
        record.move("partial")
        raise
    record.move("done")
