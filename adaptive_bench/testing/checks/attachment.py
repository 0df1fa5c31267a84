"""A method attaches to a backbone, and leaves it as it was."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.check import Facts, Violation, check
from adaptive_bench.testing.checks.comparison import demand
from adaptive_bench.testing.subject import Subject


@check("builds")
def builds(subject: Subject) -> Facts:
    """The method attaches with parameters of its own; its dial skips nothing at one end of its range.

    And the dial refuses what lies outside of that range.
    """
    model = subject.build()
    own = {id(parameter) for parameter in model.backbone_model.parameters()}
    borrowed = [name for name, parameter in model.method.named_parameters() if id(parameter) in own]
    demand(
        not borrowed,
        f"A method has parameters of its own, but {', '.join(borrowed[:3])} belong to the backbone. Modules of the "
        "backbone are reached through view.call.backbone; never make them attributes of the method.",
    )
    dial = model.method.dial
    demand(
        dial.skip_nothing in (dial.minimum, dial.maximum),
        f"The dial {dial.name!r} must skip nothing at one end of [{dial.minimum:g}, {dial.maximum:g}], got "
        f"{dial.skip_nothing:g}. Turn the scale so that saving grows from one end to the other.",
    )
    demand(
        model.dial == dial.skip_nothing == model.method.checked_dial(0.0),
        f"A new model, and dial_for(0), stand at {dial.skip_nothing:g}, which skips nothing; got {model.dial:g} and "
        f"{model.method.checked_dial(0.0):g}. Let dial_for(0) return dial.skip_nothing.",
    )
    for outside in (math.nextafter(dial.minimum, -math.inf), math.nextafter(dial.maximum, math.inf), math.nan):
        try:
            model.dial = outside
        except UsageError:
            continue
        raise Violation(
            f"A dial outside [{dial.minimum:g}, {dial.maximum:g}] is refused with a UsageError, but {outside!r} was "
            "taken. Leave DialSpec.check as it is."
        )
    subject.model()
    return {"calibration": model.needs_calibration}


@check("detach", needs=("determinism",))
def detach(subject: Subject) -> Facts:
    """A backbone that a method was attached to, calibrated on and run with is afterwards bit-equal to what it was."""
    backbone = subject.backbone()
    text = subject.text(12, 9, prompt=5)
    before, modules = _tensors(backbone), _modules(backbone)
    with torch.no_grad():
        logits = backbone(text.input_ids).logits
    shared = subject.model()
    model = AdaptiveModel.build(backbone, subject.spec).eval()
    model.prepare_training([text.arguments])
    if model.needs_calibration:
        model.calibrate([text.arguments], [0.5 * model.method.max_saved_tokens])
    model.dial = model.method.checked_dial(0.5 * shared.method.max_saved_tokens)
    with torch.no_grad():
        model(**text.arguments)
        new_tokens(model, text.input_ids, text.attention_mask, max_new_tokens=3)
    del model
    after = _tensors(backbone)
    changed = [name for name in before.keys() | after.keys() if not _same(before.get(name), after.get(name))]
    demand(
        not changed,
        f"Using a method must not change the backbone, but {', '.join(sorted(changed)[:3])} changed. Keep what the "
        "method needs in parameters and buffers of its own.",
    )
    with torch.no_grad():
        equal = torch.equal(backbone(text.input_ids).logits, logits)
    demand(
        _modules(backbone) == modules and equal,
        "A backbone without its method is the plain model again, but modules or hooks were left behind. Decide in "
        "decide(); never wrap or hook modules of the backbone.",
    )
    return {}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def _modules(module: nn.Module) -> list[tuple[str, type, object, int]]:
    """Every module with its class, its forward and its number of hooks."""
    return [
        (name, type(part), part.forward.__func__, len(part._forward_hooks) + len(part._forward_pre_hooks))
        for name, part in module.named_modules()
    ]
