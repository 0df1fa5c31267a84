"""The two kinds of work of a run: train a cell, sweep a method's dial on a task. Both pick up what is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench import guard, opened, processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.faults import is_exit_of_plugin
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.pretrained import Pretrained
from adaptive_bench.model.timing import environment
from adaptive_bench.progress import Meter, Reporter, SilentReporter
from adaptive_bench.runs.planning.backbones import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.files_read import check_unchanged, files_read
from adaptive_bench.runs.planning.task_inputs import check_inputs
from adaptive_bench.runs.planning.training_text import as_planned, draw_flop_calibration_text, draw_training
from adaptive_bench.runs.workers.calibrated import Calibrated
from adaptive_bench.source import check_code
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.attempts import alone
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.records import FILES_READ, Record, RecordedReporter
from adaptive_bench.tables.made_with import FACTS
from adaptive_bench.training import Target, calibration_batches, encode_examples, price, train
from adaptive_bench.training.encoding import padding_id
from adaptive_bench.training.loop import RESUME_FOLDER
from adaptive_bench.training.memory import find_batch_size
from adaptive_bench.training.tracking import Tracking

_PRICING_BATCH = 16  # sequences


def train_cell(cell: Cell, config: RunConfig, reporter: Reporter) -> None:
    """Train a cell, unless it is trained already or another process is just doing it.

    Raises:
        EnvironmentProblem: What it starts from is not trained.
    """
    if cell.base is not None and not cell.base.finished:
        raise EnvironmentProblem(f"it starts from `{cell.base}`, which failed.")
    with alone(cell.folder, str(cell), reporter):
        if cell.finished:
            return
        check_code(cell.spec.name, "training", cell.content["code"])
        device = find_device(config.device)
        with _recorded(cell.record, cell.content, device):
            said = RecordedReporter(reporter, cell.record, f"seed {cell.seed}")
            model, tokenizer = _build(cell, config), _backbone(cell, config).load_tokenizer()
            if cell.target is not None:
                _aim(model, cell, config, tokenizer, said)
            with processes.here().together("train", cell, config, model.method.target), _reading(cell, config):
                _fit(model, cell, config, tokenizer, said)


def _curves(cell: Cell, config: RunConfig) -> Tracking:
    about: dict[str, str | int | float] = {"method": str(cell.spec), "seed": cell.seed}
    about |= {"model": config.model, "record": cell.folder.name}
    title = f"{cell.spec}{cell.about_target}, seed {cell.seed}"
    return Tracking(config.track, cell.folder.name, title, config.out / "tracking", about)


def _fit(model: AdaptiveModel, cell: Cell, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    recipe = config.train if cell.steps else config.train.model_copy(update={"steps": 0})
    drawn = draw_training(config, cell.seed, SilentReporter()) if cell.steps else []
    text = as_planned(drawn, cell.content["data"]["sha256"]) if cell.steps else []
    rate = cell.content["method_learning_rate"]
    pretrained = None
    if recipe.lora is not None and cell.base is None:
        source = _backbone(cell, config)
        pretrained = Pretrained.at(source.location, source.revision)
    train(
        model,
        text,
        tokenizer,
        recipe,
        rate,
        seed=cell.seed,
        folder=cell.folder,
        reporter=reporter,
        curves=_curves(cell, config),
        pretrained=pretrained,
        chat_template=config.chat_template,
    )


def _build(cell: Cell, config: RunConfig) -> AdaptiveModel:
    backbone = _backbone(cell, config).load_model() if cell.base is None else _trained_backbone(cell.base)
    return AdaptiveModel.build(backbone, cell.spec, seed=cell.seed).to(find_device(config.device))


def _backbone(cell: Cell, config: RunConfig) -> BackboneSource:
    return planned_backbone(config.model, cell.content["backbone"])


def _aim(model: AdaptiveModel, cell: Cell, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    """Turn the target saving into the end of the method's schedule, and keep what was found."""
    assert cell.target is not None
    max_length = min(config.train.max_length, model.backbone.context_length)
    examples = as_planned(draw_flop_calibration_text(config, cell.seed), cell.content["target"]["text"])
    text = encode_examples(examples, tokenizer, max_length, SilentReporter(), chat_template=config.chat_template)
    saving, axis = cell.target, cell.content["target"]["axis"]

    def at(batch_size: int) -> Target:
        batches = calibration_batches(text, padding_id(tokenizer), batch_size, model.backbone_model.device)
        return price(model, batches, saving, axis)

    target, _ = find_batch_size(
        at,
        _PRICING_BATCH,
        lambda size: reporter.line(f"price {cell.spec}: out of memory; now {size} sequence(s) at a time"),
    )
    model.method.target = target.tokens
    cell.record.write("target.json", target.to_json())


def _trained_backbone(cell: Cell) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(cell.checkpoint, calibration=None).backbone_model


def evaluate_sweeps(
    sweeps: Sequence[Sweep],
    reporter: Reporter,
    overall: Meter,
    attempting: Callable[[Sweep], AbstractContextManager[None]],
) -> None:
    """Measure what is missing of some sweeps that share a method spec and a training; one model serves them all.

    Args:
        overall: Advanced by one for each point of `Sweep.points_left`.
        attempting: Entered for each sweep; where it takes an error for itself, the next sweep goes on.
    """
    trained = Calibrated(sweeps[0])
    for sweep in sweeps:
        trained.set_sweep(sweep)
        with attempting(sweep), alone(sweep.folder, str(sweep), reporter, root=sweep.cell.folder):
            if sweep.finished() is None:
                check_code(sweep.spec.name, "evaluation", sweep.content["code"])
                with _recorded(sweep.record, sweep.content, trained.device):
                    said = RecordedReporter(reporter, sweep.record, f"seed {sweep.cell.seed}")
                    _measure(sweep, trained, said, overall)


def _measure(sweep: Sweep, trained: Calibrated, reporter: Reporter, overall: Meter) -> None:
    model, record, left = trained.model, sweep.record, sweep.points_left()
    dial = model.method.dial
    about = {"name": dial.name, "minimum": dial.minimum, "maximum": dial.maximum, "skip_nothing": dial.skip_nothing}
    record.write("dial.json", about | {"max_saved_tokens": model.method.max_saved_tokens})
    asked = sweep.first_savings(model.method)
    trained.calibrate(asked, reporter)
    if trained.has_text:
        record.write("behaviour.json", {"sha256": trained.behaviour})

    def measure(saving: float) -> Evaluation:
        nonlocal left
        if (known := record.point(saving)) is not None:
            return known
        trained.calibrate([saving], reporter)
        asked.append(saving)
        calibration = trained.calibration(asked, record.read("calibration.json"))
        record.write("calibration.json", calibration)
        model.dial = model.method.dial_for(saving)
        trained.store(saving)
        start_s = time.perf_counter()
        thresholds = None if model.method.thresholds is None else model.method.thresholds.state()
        with processes.here().together("evaluate", sweep, model.dial, thresholds):
            evaluation, samples = _ask(sweep, trained, reporter)
        check_inputs(sweep.task, sweep.config.data_dir, sweep.content)
        read = files_read(sweep.config, (sweep.spec.name, sweep.cell.spec.name), (sweep.task,))
        check_unchanged(read)
        guard.check()
        record.add_point(saving, evaluation, samples, wall_s=time.perf_counter() - start_s, files_read=read)
        if left > 0:
            left -= 1
            overall.advance(1)
        return evaluation

    sweep.walk(measure, model.method)
    overall.advance(left)


def _ask(sweep: Sweep, trained: Calibrated, reporter: Reporter) -> tuple[Evaluation, list[Sample]]:
    """The model's answers as its dial stands."""
    recipe = sweep.config.evaluation
    return evaluate(
        trained.model,
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


def follow() -> None:
    """Take part in the work of the process that leads this one, until there is no more."""
    known: dict[tuple[Path, MethodSpec], Calibrated] = {}

    def fit(cell: Cell, config: RunConfig, target: float) -> None:
        model = _build(cell, config)
        model.method.target = target
        _fit(model, cell, config, _backbone(cell, config).load_tokenizer(), SilentReporter())

    def ask(sweep: Sweep, dial: float, thresholds: dict[str, Tensor] | None) -> None:
        key = sweep.cell.folder, sweep.spec
        if key not in known:
            known.clear()  # one model at a time
            known[key] = Calibrated(sweep)
        trained = known[key]
        if thresholds:
            assert trained.model.method.thresholds is not None
            trained.model.method.thresholds.load(thresholds)
        trained.model.dial = dial
        _ask(sweep, trained, SilentReporter())

    processes.here().follow({"train": fit, "evaluate": ask})


@contextmanager
def _reading(cell: Cell, config: RunConfig) -> Iterator[None]:
    """Write down what the method reads in the block, however that ends: a training may go on from where it stopped."""
    try:
        yield
    finally:
        read = files_read(config, (cell.spec.name,))
        before = cell.record.files_read()
        both = {plugin: before.get(plugin, {}) | read.get(plugin, {}) for plugin in before | read}
        if both:
            cell.record.write(FILES_READ, {"files_read": both})
    check_unchanged(read)


def _environments(record: Record, device: torch.device) -> dict[str, Any]:
    """Versions and hardware of this process, and `before` it those of the processes whose work it goes on with."""
    about, known = environment(device), record.read("env.json")
    goes_on = (record.folder / RESUME_FOLDER).is_dir() or any(record.folder.glob("[0-9]*.json"))
    if known is None or not goes_on:
        return about
    earlier = [{name: one.get(name) for name in FACTS} for one in (*known.get("before", ()), known, about)]
    before = [one for place, one in enumerate(earlier) if one != earlier[-1] and one not in earlier[:place]]
    return about | ({"before": before} if before else {})


@contextmanager
def _recorded(record: Record, content: Mapping[str, Any], device: torch.device) -> Iterator[None]:
    """Keep the state of some work on disk, whatever becomes of it; unless somebody else has taken it over."""
    opened.begin()
    record.begin(content)
    record.write("env.json", _environments(record, device))
    try:
        yield
        guard.check()
    except Superseded:
        raise
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
