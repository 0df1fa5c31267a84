"""Training reaches what it should, and nothing else."""

from __future__ import annotations

import math

import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.accounting import eager_attention
from adaptive_bench.testing.checks.comparison import demand
from adaptive_bench.testing.flops import ExecutedFlops
from adaptive_bench.testing.subject import Subject
from adaptive_bench.testing.training import ShortTraining
from adaptive_bench.training.cost import FlopCount

STEPS = 20
SCHEDULE = 8  # steps: every stage of a curriculum over the layers of a tiny backbone comes up
COST_SHARE = 0.01  # of all FLOPs


@check("gradients", needs=("builds",), of_training=True)
def gradients(subject: Subject) -> Facts:
    """Every trainable parameter gets a gradient, and a frozen backbone stays as it was."""
    training = ShortTraining(subject, total_steps=4)
    model = training.model
    before = {name: value.clone() for name, value in model.backbone_model.state_dict().items()}
    reached: set[str] = set()
    for step in range(1, 5):
        training.backward(step)
        reached |= _with_gradient(model)
        training.optimizer.step()
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    frozen = model.method.freezes_backbone
    moved = [name for name, value in model.backbone_model.state_dict().items() if not torch.equal(value, before[name])]
    touched = sorted(name for name in trainable | reached if name.startswith("backbone_model."))
    demand(
        not (frozen and (touched or moved)),
        f"freezes_backbone promises a backbone at rest, but {', '.join([*touched, *moved][:3])} trains. Never set "
        "requires_grad of the backbone.",
    )
    missing = sorted(trainable - reached)
    demand(
        not missing,
        f"Every trainable parameter must get a gradient within 4 training steps, but {', '.join(missing[:3])} "
        f"({len(missing)} in all) got none. Use it in decide() or losses(), or set requires_grad=False.",
    )
    return {"frozen_backbone": not moved}


def _with_gradient(model: AdaptiveModel) -> set[str]:
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and bool((parameter.grad != 0).any())
    }


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
    with eager_attention(training.model), ExecutedFlops() as counted:
        training.run(1, SCHEDULE)
    executed = counted.total
    demand(
        abs(count.flops - executed) <= COST_SHARE * executed,
        f"Every FLOP of a training must be counted, but {SCHEDULE} steps executed {executed} and {count.flops} are "
        "counted. Compute losses and decisions with nn.Linear modules and call.cross_entropy(), not with raw matrix "
        "products.",
    )
    return {}
