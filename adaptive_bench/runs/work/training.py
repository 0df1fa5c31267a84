"""Trains a cell; what is on disk of it is picked up."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.pretrained import Pretrained
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.backbones import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.planning.cells import Cell
from adaptive_bench.runs.planning.training_text import as_planned, draw_pricing, draw_training
from adaptive_bench.runs.records.attempts import alone
from adaptive_bench.runs.work.recording import RecordedReporter, recorded
from adaptive_bench.source import check_code
from adaptive_bench.training import Target, calibration_batches, encode_examples, price, train
from adaptive_bench.training.encoding import padding_id
from adaptive_bench.training.memory import halving
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
        with recorded(cell.record, cell.content, device):
            said = RecordedReporter(reporter, cell.record, f"seed {cell.seed}")
            model, tokenizer = _build(cell, config), _backbone(cell, config).load_tokenizer()
            if cell.target is not None:
                _aim(model, cell, config, tokenizer, said)
            with processes.world().broadcast_job("train", cell, config, model.method.target):
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
    examples = as_planned(draw_pricing(config, cell.seed), cell.content["target"]["text"])
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
    cell.record.write("target.json", target.to_json())


def _trained_backbone(cell: Cell) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(cell.checkpoint, calibration=None).backbone_model


def train_as_worker(cell: Cell, config: RunConfig, target: float) -> None:
    """Take part in the training of a cell that the main process has begun."""
    model = _build(cell, config)
    model.method.target = target
    _fit(model, cell, config, _backbone(cell, config).load_tokenizer(), SilentReporter())
