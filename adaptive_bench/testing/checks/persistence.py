"""Nothing is lost on disk: a saved model is the same model, a resumed training the same training."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference, generated_tokens, logits_of
from adaptive_bench.testing.subject import SHARES, Subject, calibrate
from adaptive_bench.testing.training import ShortTraining, trained_model
from adaptive_bench.training import checkpoint


@check("saving", needs=("determinism", "detach"), rounding=True)
def saving(subject: Subject) -> Facts:
    """A trained and calibrated model that is saved and loaded has the same dials, logits and generations."""
    with tempfile.TemporaryDirectory() as folder:
        model = trained_model(subject, Path(folder) / "trained")
        calibrate(model)
        model.dial = model.method.checked_dial(SHARES[-1] * model.method.max_saved_tokens)
        model.save_pretrained(Path(folder) / "saved")
        loaded = AdaptiveModel.from_pretrained(Path(folder) / "saved").to(subject.device)
    text, prompts = subject.text(14, 8, 11), subject.text(8, 5, 8, seed=4)
    savings = [share * model.method.max_saved_tokens for share in (0.0, *SHARES)]
    lost = [
        what
        for what, same in {
            "the dial": loaded.dial == model.dial,
            "dial_for": _dials(loaded, savings) == _dials(model, savings),
            "logits": difference(logits_of(loaded, text), logits_of(model, text)) <= TOLERANCE,
            "generations": generated_tokens(loaded, prompts) == generated_tokens(model, prompts),
        }.items()
        if not same
    ]
    demand(
        not lost,
        f"A loaded model must be the saved one, but {', '.join(lost)} differ. Keep all state in parameters, in "
        "persistent buffers, or in what follows from config and seed.",
    )
    return {"saving": True}


def _dials(model: AdaptiveModel, savings: list[float]) -> list[float]:
    return [model.method.checked_dial(saving) for saving in savings]


@check("resuming", needs=("determinism", "gradients"), of_training=True)
def resuming(subject: Subject) -> Facts:
    """Two training steps, a checkpoint, and two steps in a new process are the same as four steps, bit for bit."""
    whole = ShortTraining(subject, total_steps=4)
    losses = whole.run(1, 4)
    first = ShortTraining(subject, total_steps=4)
    halves = first.run(1, 2)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), checkpoint.Progress(2, 1, 0), first.model, first.optimizer)
        second = ShortTraining(subject, total_steps=4)
        newest = checkpoint.newest(Path(folder))
        assert newest is not None
        checkpoint.restore(newest, second.model, second.optimizer)
        halves += second.run(3, 4)
    lost = [name for name, value in _state(whole).items() if not torch.equal(value, _state(second)[name])]
    demand(
        losses == halves and not lost,
        f"A resumed training must repeat the uninterrupted one, but losses are {losses} and {halves}"
        + (f", and {', '.join(lost[:3])} differ" if lost else "")
        + ". Keep state that training changes in parameters or persistent buffers, or derive it from the step.",
    )
    return {}


def _state(training: ShortTraining) -> dict[str, Tensor]:
    return checkpoint.trainable_state(training.model)
