"""Trains a training; what is on disk of it is picked up."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adaptive_bench import processes
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.planning.training_text import as_planned, draw_training
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.runs.work.models import backbone_of, build_model, pretrained_of
from adaptive_bench.runs.work.recording import curves_of, recorded
from adaptive_bench.runs.work.target import set_target
from adaptive_bench.store.lock import exclusive
from adaptive_bench.training import train


def carry_out_training(training: TrainingRun, config: RunConfig, reporter: Reporter) -> None:
    """Train a training, unless it is trained already or another process is just doing it.

    Raises:
        EnvironmentProblem: What it starts from is not trained.
    """
    if training.base is not None and not training.base.finished:
        raise EnvironmentProblem(f"it starts from `{training.base}`, which failed.")
    with exclusive(training.folder, str(training), reporter):
        if training.finished:
            return
        with recorded(training, config, reporter) as said:
            model, tokenizer = build_model(training, config), backbone_of(training, config).load_tokenizer()
            if training.target is not None:
                set_target(model, training, config, tokenizer, said)
            with processes.world().broadcast_job(
                "train", training, config, model.method.target_of_all, _prepared(model)
            ):
                _fit(model, training, config, tokenizer, said)


def _fit(model: AdaptiveModel, training: TrainingRun, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    recipe = _recipe(training, config) if training.steps else config.train.model_copy(update={"steps": 0})
    drawn = draw_training(config, training.seed, SilentReporter()) if training.steps else []
    text = as_planned(drawn, training.content["data"]["sha256"]) if training.steps else []
    rate = training.content["method_learning_rate"]
    train(
        model,
        text,
        tokenizer,
        recipe,
        rate,
        seed=training.seed,
        folder=training.folder,
        reporter=reporter,
        curves=curves_of(training, config),
        pretrained=pretrained_of(training, config),
        chat_template=config.chat_template,
    )


def _recipe(training: TrainingRun, config: RunConfig) -> TrainRecipe:
    """That of the config, in the precision of the plan: not every config says what `auto` means."""
    return config.train.model_copy(update={"precision": training.content["recipe"]["precision"]})


def _prepared(model: AdaptiveModel) -> dict[str, Tensor]:
    """What a method measured before its training; it is among its buffers."""
    return {name: value.cpu() for name, value in model.method.named_buffers()} if model.method.prepares_training else {}


def train_as_worker(training: TrainingRun, config: RunConfig, target: float, prepared: dict[str, Tensor]) -> None:
    """Take part in the training of a training that the main process has begun."""
    model = build_model(training, config)
    model.method.target = target
    model.method.load_state_dict(prepared, strict=False)
    _fit(model, training, config, backbone_of(training, config).load_tokenizer(), SilentReporter())
