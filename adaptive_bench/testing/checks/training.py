"""Checks that training reaches what it should and nothing else, and that saving and resuming change nothing."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.checking import TOLERANCE, Facts, check, demand, difference, generated_tokens, logits_of
from adaptive_bench.testing.checks.executors_agree import eager_attention
from adaptive_bench.testing.subject import SHARES, ShortTraining, Subject, calibrate, trained_model
from adaptive_bench.training import resume
from adaptive_bench.training.cost import FlopCount

STEPS = 20
SCHEDULE = 8  # steps, enough for every stage of a curriculum over the layers of a tiny backbone
COST_SHARE = 0.01  # most deviation, as a share of all FLOPs


@check("gradients", needs=("builds",), of_training=True)
def gradients(subject: Subject) -> Facts:
    """Every trainable parameter gets a gradient, and a frozen backbone stays as it was."""
    training = ShortTraining(subject, total_steps=4)
    model = training.model
    before = {name: value.clone() for name, value in model.backbone_model.state_dict().items()}
    reached: set[str] = set()
    for step in range(1, 5):
        training.backward(step)
        for name, parameter in model.named_parameters():
            # A curriculum or a random draw may leave a parameter out of a single step.
            if parameter.grad is not None and bool((parameter.grad != 0).any()):
                reached.add(name)
        training.optimizer.step()
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    frozen = model.method.freezes_backbone
    moved = [name for name, value in model.backbone_model.state_dict().items() if not torch.equal(value, before[name])]
    touched = sorted(name for name in trainable | reached if name.startswith("backbone_model."))
    demand(
        not (frozen and (touched or moved)),
        f"freezes_backbone promises a frozen backbone, but {', '.join([*touched, *moved][:3])} is trained. Never set "
        "requires_grad of the backbone.",
    )
    missing = sorted(trainable - reached)
    demand(
        not missing,
        f"Every trainable parameter must get a gradient within 4 training steps, but {', '.join(missing[:3])} "
        f"({len(missing)} in all) got none. Use it in decide() or losses(), or set requires_grad=False.",
    )
    return {"frozen_backbone": not moved}


@check("finite", needs=("builds",), of_training=True)
def finite(subject: Subject) -> Facts:
    """Twenty training steps give finite losses, gradients and parameters."""
    training = ShortTraining(subject, total_steps=STEPS)
    for step in range(1, STEPS + 1):
        loss = training.backward(step)
        norm = torch.nn.utils.get_total_norm(
            [parameter.grad for parameter in training.model.parameters() if parameter.grad is not None]
        )
        demand(
            math.isfinite(loss) and bool(norm.isfinite()),
            f"Training must stay finite, but step {step} of {STEPS} has loss {loss:g} (terms "
            f"{training.model.loss_terms}) and gradient norm {float(norm):g}. Clamp logarithms, roots and divisors.",
        )
        training.optimizer.step()
    return {}


@check("cost", needs=("gradients",), of_training=True)
def cost(subject: Subject) -> Facts:
    """Training FLOPs as they are reported, over a whole schedule, are those that PyTorch's counter sees, within 1 %."""
    training = ShortTraining(subject, total_steps=SCHEDULE)
    count = FlopCount(training.model, training.model.backbone)
    with eager_attention(training.model), FlopCounterMode(display=False) as counted:
        training.run(1, SCHEDULE)
    executed = counted.get_total_flops()
    demand(
        abs(count.flops - executed) <= COST_SHARE * executed,
        f"Every FLOP of a training must be counted, but {SCHEDULE} steps executed {executed} and {count.flops} are "
        "counted. Compute losses and decisions with nn.Linear modules and call.cross_entropy(), not with raw matrix "
        "products.",
    )
    return {}


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
        # Step 2, one micro-batch a step, no MACs counted.
        resume.save(Path(folder), resume.Progress(2, 1, 0), first.model, first.optimizer)
        second = ShortTraining(subject, total_steps=4)  # stands for the new process
        newest = resume.newest(Path(folder))
        assert newest is not None
        resume.restore(newest, second.model, second.optimizer)
        halves += second.run(3, 4)
    state, resumed = (resume.trainable_state(one.model) for one in (whole, second))
    lost = [name for name, value in state.items() if not torch.equal(value, resumed[name])]
    demand(
        losses == halves and not lost,
        f"A resumed training must repeat the uninterrupted one, but losses are {losses} and {halves}"
        + (f", and {', '.join(lost[:3])} differ" if lost else "")
        + ". Keep state that training changes in parameters or persistent buffers, or derive it from the step.",
    )
    return {}
