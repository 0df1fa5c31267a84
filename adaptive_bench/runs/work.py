"""The two kinds of work of a run: train a cell, sweep a method's dial on a task. Both pick up what is on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from transformers import PreTrainedModel

from adaptive_bench import atomic
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.record import Evaluation
from adaptive_bench.faults import is_exit_of_plugin
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.pretrained import Pretrained
from adaptive_bench.model.saving import add_tokenizer
from adaptive_bench.progress import Meter, Reporter, SilentReporter
from adaptive_bench.runs.backbones import find_backbone, find_device
from adaptive_bench.runs.calibrated import Calibrated
from adaptive_bench.runs.cells import Cell, Sweep
from adaptive_bench.runs.keys import SCHEMA
from adaptive_bench.runs.records import Record, RecordedReporter, environment
from adaptive_bench.runs.training_text import draw_pricing, draw_training
from adaptive_bench.training import Target, calibration_batches, encode_examples, price, train
from adaptive_bench.training.encoding import padding_id
from adaptive_bench.training.memory import halving

_PRICING_BATCH = 16  # sequences


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
            tokenizer, recipe = source.load_tokenizer(), config.train
            if cell.target is not None:
                _aim(model, cell, config, tokenizer, said)
            if not cell.steps:
                recipe = recipe.model_copy(update={"steps": 0})
            text = draw_training(config, cell.seed, SilentReporter()) if cell.steps else []
            rate = cell.content["method_learning_rate"]
            pretrained = None
            if recipe.lora is not None and cell.base is None:
                pretrained = Pretrained.at(source.location, source.revision)
            train(
                model,
                text,
                tokenizer,
                recipe,
                rate,
                seed=cell.seed,
                folder=cell.folder,
                reporter=said,
                pretrained=pretrained,
                chat_template=config.chat_template,
            )
            add_tokenizer(cell.checkpoint, tokenizer)


def _aim(model: AdaptiveModel, cell: Cell, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    """Turn the target saving into the end of the method's schedule, and keep what was found."""
    assert cell.target is not None
    max_length = min(config.train.max_length, model.backbone.context_length)
    examples = draw_pricing(config, cell.seed)
    text = encode_examples(examples, tokenizer, max_length, SilentReporter(), chat_template=config.chat_template)
    saving, axis = cell.target, cell.content["target"]["axis"]

    def at(batch_size: int) -> Target:
        batches = calibration_batches(text, padding_id(tokenizer), batch_size, model.backbone_model.device)
        return price(model, batches, saving, axis)

    target, _ = halving(
        at,
        _PRICING_BATCH,
        lambda size: reporter.line(f"price {cell.spec}: out of memory; now {size} sequence(s) at a time"),
    )
    model.method.target = target.tokens
    atomic.write_json(cell.folder / "target.json", {"schema": SCHEMA, **target.to_json()})


def _trained_backbone(cell: Cell) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(cell.checkpoint, calibration=None).backbone_model


def evaluate_sweeps(sweeps: Sequence[Sweep], reporter: Reporter, overall: Meter) -> None:
    """Measure what is missing of some sweeps that share a method spec and a training; one model serves them all.

    Args:
        overall: Advanced by one for each point of `Sweep.points_left`.
    """
    trained = Calibrated(sweeps[0])
    for sweep in sweeps:
        trained.turn_to(sweep)
        with _alone(sweep.folder, str(sweep), reporter):
            if sweep.finished() is None:
                with _recorded(sweep.record, sweep.content, trained.device):
                    said = RecordedReporter(reporter, sweep.record, f"seed {sweep.cell.seed}")
                    _measure(sweep, trained, said, overall)


def _measure(sweep: Sweep, trained: Calibrated, reporter: Reporter, overall: Meter) -> None:
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
        atomic.write_json(record.folder / "calibration.json", {"schema": SCHEMA, **trained.calibration})
        model.dial = model.method.dial_for(saving)
        trained.store(saving)
        recipe = sweep.config.evaluation
        start_s = time.perf_counter()
        evaluation, samples = evaluate(
            model,
            trained.tokenizer,
            sweep.task,
            data_dir=sweep.config.data_dir,
            split=sweep.split,
            limit=recipe.limit,
            num_fewshot=recipe.num_fewshot,
            batch_size=recipe.batch_size,
            chat_template=sweep.config.chat_template,
            progress=reporter,
        )
        record.add_point(saving, evaluation, samples, wall_s=time.perf_counter() - start_s)
        if left > 0:
            left -= 1
            overall.advance(1)
        return evaluation

    sweep.walk(measure, model.method)
    overall.advance(left)


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
    except BaseException as error:
        if isinstance(error, SystemExit) and is_exit_of_plugin(error):
            record.fail(error)
        else:
            record.move("partial")
        raise
    record.move("done")
