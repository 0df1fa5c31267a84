"""Prepares a spec on a tiny backbone for checks, and trains it for a few steps as the real training loop does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

import torch
from transformers import PreTrainedModel

from adaptive_bench.method import method_class, training_spec
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.backbones import Text, random_text, tiny_backbone
from adaptive_bench.training.encoding import IGNORED_LABEL

SEED = 1
SPREAD = 0.3  # standard deviation of what is added to parameters
SHARES = (0.4, 0.8)  # of the largest saving the dial can reach
CALIBRATION_PROMPT = 10
CALIBRATION_TEXT = random_text((24,) * 6, seed=99, prompt=CALIBRATION_PROMPT)


class Subject:
    """One method spec on one family, with models and texts on a device."""

    def __init__(self, spec: MethodSpec, family: str, device: torch.device | str = "cpu") -> None:
        self.spec = spec
        self.family = family
        self.device = torch.device(device)
        self.texts = 0  # number of the set of texts that `text` draws from

    @property
    def training_spec(self) -> MethodSpec:
        """The spec that has to be trained for this one."""
        return training_spec(self.spec)

    @property
    def declared_class(self) -> str:
        """Causality class that the method must have: C0 in `bench`, and in `paper` the one it declares."""
        return "C0" if self.spec.semantics == "bench" else method_class(self.spec).paper_class

    def build(self, spec: MethodSpec | None = None) -> AdaptiveModel:
        """A new model in `eval()` that is ready to be trained, by default of the spec itself."""
        model = AdaptiveModel.build(self.backbone(), spec or self.spec, seed=SEED).eval()
        # Trained static depth, for one, chooses its layers on text before the first step.
        model.prepare_training([CALIBRATION_TEXT.to(self.device).arguments])
        return model

    def backbone(self, make: Callable[[str], PreTrainedModel] = tiny_backbone) -> PreTrainedModel:
        """A new model of the family without a method; see `backbones`."""
        model: torch.nn.Module = make(self.family)
        return cast(PreTrainedModel, model.to(self.device))

    def text(
        self, *lengths: int, seed: int = 0, side: Literal["left", "right"] = "left", prompt: int | None = None
    ) -> Text:
        """Random text; see `random_text`."""
        return random_text(lengths, seed=seed + 1000 * self.texts, side=side, prompt=prompt).to(self.device)

    def model(self) -> AdaptiveModel:
        """The shared model, spread and calibrated, with dial, executor and ledger reset. Do not change its weights."""
        model = self._shared
        model.dial = model.method.dial.skip_nothing
        model.executor = None
        model.reset_ledger()
        return model.eval()

    @property
    def dials(self) -> list[float]:
        """Dial values that should skip, each more than the one before; empty if the dial cannot be moved."""
        method = self._shared.method
        values = (method.checked_dial(share * method.max_saved_tokens) for share in SHARES)
        # Both shares may give one value of a dial that moves in steps.
        return [value for value in dict.fromkeys(values) if value != method.dial.skip_nothing]

    @property
    def all_dials(self) -> list[float]:
        """The value that skips nothing, followed by `dials`."""
        return [self._shared.method.dial.skip_nothing, *self.dials]

    @cached_property
    def _shared(self) -> AdaptiveModel:
        model = self.build()
        spread(model)
        calibrate(model)
        return model


@torch.no_grad()
def spread(model: AdaptiveModel) -> None:
    """Move the method's parameters at random, as training would, so that scores differ between tokens."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.method.parameters():
        # Drawn on the CPU, so that every device gets the same numbers.
        parameter.add_(SPREAD * torch.randn(parameter.shape, generator=generator).to(parameter.device))


def calibrate(model: AdaptiveModel) -> None:
    """Calibrate the dial for the savings of `SHARES`, if the method needs calibration."""
    if model.needs_calibration:
        savings = [share * model.method.max_saved_tokens for share in SHARES]
        model.calibrate([CALIBRATION_TEXT.to(model.device).arguments], savings)


LEARNING_RATE = 1e-3
LENGTHS = (16, 11, 14, 16)


class ShortTraining:
    """Trains what a subject's spec needs, one step at a time, of `total_steps` as schedules see it; the first step has
    the text of number `first_text`, each later one the next.
    """

    def __init__(self, subject: Subject, total_steps: int, first_text: int = 1) -> None:
        self.total_steps = total_steps
        self.first_text = first_text
        self.model: AdaptiveModel = subject.build(subject.training_spec).train()
        groups = self.model.parameter_groups(LEARNING_RATE)
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=0.001)

    def backward(self, step: int) -> float:
        """Computes the gradient of optimizer step `step` of 1 .. total_steps, and returns its loss."""
        # Numbered by the step, so that a resumed training reads what the whole one reads.
        number = self.first_text + step - 1
        text = random_text(LENGTHS, seed=number, side="right", distinct=True).to(self.model.device)
        labels = text.input_ids.masked_fill(~text.continuation_mask, IGNORED_LABEL)
        self.model.begin_step(step, self.total_steps)
        self.optimizer.zero_grad()
        loss = self.model(**text.as_read.arguments, labels=labels).loss
        loss.backward()
        return float(loss.detach())

    def run(self, first: int, last: int) -> list[float]:
        """Runs the steps `first` .. `last`, both included, and returns their losses."""
        losses = []
        for step in range(first, last + 1):
            losses.append(self.backward(step))
            self.optimizer.step()
        return losses


def trained_model(subject: Subject, folder: Path, training: ShortTraining | None = None) -> AdaptiveModel:
    """A model of the spec in `eval()`, after three steps of the training that it needs, if it needs any. `folder` is
    for the trained model, if another spec is trained.
    """
    training = training or ShortTraining(subject, total_steps=3)
    if training.model.method.trains:
        training.run(1, 3)
    model = training.model.eval()
    if subject.training_spec == subject.spec:
        return model
    model.save_pretrained(folder)
    model = AdaptiveModel.from_pretrained(folder, subject.spec).to(subject.device)
    with torch.no_grad():
        # Copied, since tensors mapped from a file may be aligned differently, and kernels may round differently then.
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    return model
