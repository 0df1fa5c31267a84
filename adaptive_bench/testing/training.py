"""Short trainings that call a model exactly as the real loop does, and what comes out of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import behaviour
from adaptive_bench.testing.backbones import random_text
from adaptive_bench.testing.subject import SHARES, Subject, calibrate
from adaptive_bench.training.encoding import IGNORED_LABEL

LEARNING_RATE = 1e-3
LENGTHS = (16, 11, 14, 16)
TRAVELS = (0.2, 0.4, 0.6, 0.8)


class ShortTraining:
    """Trains what a subject's spec needs trained, one step at a time.

    Args:
        total_steps: Length of the training that schedules see.
        first_text: Number of the text of its first step; that of the next is one higher.
    """

    def __init__(self, subject: Subject, total_steps: int, first_text: int = 1) -> None:
        self.total_steps = total_steps
        self.first_text = first_text
        self.model: AdaptiveModel = subject.build(subject.training_spec).train()
        groups = self.model.parameter_groups(LEARNING_RATE)
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=0.001)

    def backward(self, step: int) -> float:
        """Loss of optimizer step `step` of 1 .. total_steps, and its gradient."""
        number = self.first_text + step - 1
        text = random_text(LENGTHS, seed=number, side="right", distinct=True).to(self.model.device)
        labels = text.input_ids.masked_fill(~text.continuation_mask, IGNORED_LABEL)
        self.model.begin_step(step, self.total_steps)
        self.optimizer.zero_grad()
        loss = self.model(**text.as_read.arguments, labels=labels).loss
        loss.backward()
        return float(loss.detach())

    def run(self, first: int, last: int) -> list[float]:
        """The losses of steps `first` .. `last`, both included."""
        losses = []
        for step in range(first, last + 1):
            losses.append(self.backward(step))
            self.optimizer.step()
        return losses


def trained_model(subject: Subject, folder: Path, training: ShortTraining | None = None) -> AdaptiveModel:
    """A model of the spec, in `eval()`, after three training steps of what has to be trained for it, if anything has.

    Args:
        training: The training, before its first step.
    """
    training = training or ShortTraining(subject, total_steps=3)
    if training.model.method.trains:
        training.run(1, 3)
    model = training.model.eval()
    if subject.training_spec == subject.spec:
        return model
    model.save_pretrained(folder)
    return _realigned(AdaptiveModel.from_pretrained(folder, subject.spec).to(subject.device))


def _realigned(model: AdaptiveModel) -> AdaptiveModel:
    """Tensors mapped from a file lie where the file says, and kernels may round differently there."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    return model


def trained_behaviour(subject: Subject) -> str:
    """Behaviour of a spec after some steps of training, so that parameters which matter in training only show too."""
    with tempfile.TemporaryDirectory() as folder:
        model = trained_model(subject, Path(folder))
    calibrate(model)
    dials = [model.method.checked_dial(share * model.method.max_saved_tokens) for share in SHARES]
    if model.method.solves_dial:  # a parameter that shifts the dial changes nothing at equal savings
        dials += [model.method.dial.at(travel) for travel in TRAVELS]
    return behaviour(model, random_text((24, 24, 17, 24), prompt=6).to(subject.device).arguments, dials)
