"""Trains a cell; what is on disk of it is picked up."""

from __future__ import annotations

from typing import Any

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.cells import Cell
from adaptive_bench.runs.planning.training_text import as_planned, draw_training
from adaptive_bench.runs.work.models import backbone_of, build_model, pretrained_of
from adaptive_bench.runs.work.recording import curves_of, reading, recorded
from adaptive_bench.runs.work.target import set_target
from adaptive_bench.store.attempts import alone
from adaptive_bench.training import first_steps, train


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
        with recorded(cell, config, reporter) as said:
            model, tokenizer = build_model(cell, config), backbone_of(cell, config).load_tokenizer()
            if cell.target is not None:
                set_target(model, cell, config, tokenizer, said)
            with processes.world().broadcast_job("train", cell, config, model.method.target), reading(cell, config):
                _fit(model, cell, config, tokenizer, said)


def _fit(model: AdaptiveModel, cell: Cell, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    recipe = config.train if cell.steps else config.train.model_copy(update={"steps": 0})
    drawn = draw_training(config, cell.seed, SilentReporter()) if cell.steps else []
    text = as_planned(drawn, cell.content["data"]["sha256"]) if cell.steps else []
    rate = cell.content["method_learning_rate"]
    train(
        model,
        text,
        tokenizer,
        recipe,
        rate,
        seed=cell.seed,
        folder=cell.folder,
        reporter=reporter,
        curves=curves_of(cell, config),
        pretrained=pretrained_of(cell, config),
        chat_template=config.chat_template,
    )


def train_as_worker(cell: Cell, config: RunConfig, target: float) -> None:
    """Take part in the training of a cell that the main process has begun."""
    model = build_model(cell, config)
    model.method.target = target
    _fit(model, cell, config, backbone_of(cell, config).load_tokenizer(), SilentReporter())


def repeat_first_steps(cell: Cell, config: RunConfig, steps: int) -> list[dict[str, Any]]:
    """What the log of a training would say of its first steps, with the code that is here now. Nothing is written."""
    model, tokenizer = build_model(cell, config), backbone_of(cell, config).load_tokenizer()
    if (target := cell.record.read("target.json")) is not None:
        model.method.target = target["tokens"]
    text = as_planned(draw_training(config, cell.seed, SilentReporter()), cell.content["data"]["sha256"])
    rate, chat = cell.content["method_learning_rate"], config.chat_template
    return first_steps(model, text, tokenizer, config.train, rate, steps=steps, seed=cell.seed, chat_template=chat)
