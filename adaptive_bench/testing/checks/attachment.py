"""Checks that a method attaches to a backbone, leaves it unchanged, and equals it at skip-nothing, untrained too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adaptive_bench.backbone import Site, find_family
from adaptive_bench.method import Decision, InitialChange
from adaptive_bench.method.dial import NARROWEST
from adaptive_bench.method.dial import TOLERANCE as SLACK
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.checking import TOLERANCE, Facts, check, demand, difference, saved_by_phase
from adaptive_bench.testing.subject import (
    BOS,
    CALIBRATION_TEXT,
    SEED,
    SIZES,
    WIDTH,
    Subject,
    Text,
    massive_backbone,
    tiny_backbone,
    wide_backbone,
)
from adaptive_bench.training.encoding import IGNORED_LABEL


@check("builds")
def builds(subject: Subject) -> Facts:
    """The method attaches with parameters of its own, at a dial that skips nothing."""
    model = subject.build()
    own = {id(parameter) for parameter in model.backbone_model.parameters()}
    borrowed = [name for name, parameter in model.method.named_parameters() if id(parameter) in own]
    demand(
        not borrowed,
        f"A method must have its own parameters, but {', '.join(borrowed[:3])} belong to the backbone. Reach modules "
        "of the backbone through view.call.backbone; never make them attributes of the method.",
    )
    dial = model.method.dial
    demand(
        model.dial == dial.skip_nothing == model.method.checked_dial(0.0),
        f"The dial of a new model, and dial_for(0), must be {dial.skip_nothing:g}, which skips nothing; got "
        f"{model.dial:g} and {model.method.checked_dial(0.0):g}. Let dial_for(0) return dial.skip_nothing.",
    )
    subject.model()
    return {"calibration": model.needs_calibration}


@check("detach", needs=("determinism",))
def detach(subject: Subject) -> Facts:
    """A backbone is bit-equal to what it was after a method was attached to it, calibrated and run."""
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
    # Half of what a calibrated, spread model can save; of this model nothing is asked but that it runs.
    model.dial = model.method.checked_dial(0.5 * shared.method.max_saved_tokens)
    with torch.no_grad():
        model(**text.arguments)
        new_tokens(model, text.input_ids, text.attention_mask, max_new_tokens=3)
    del model
    after = _tensors(backbone)
    both = before.keys() & after.keys()
    # Tensors that came or went, and those whose values changed.
    changed = [*(before.keys() ^ after.keys()), *(name for name in both if not torch.equal(before[name], after[name]))]
    demand(
        not changed,
        f"Using a method must not change the backbone, but {', '.join(sorted(changed)[:3])} changed. Keep what the "
        "method needs in parameters and buffers of its own.",
    )
    with torch.no_grad():
        equal = torch.equal(backbone(text.input_ids).logits, logits)
    demand(
        _modules(backbone) == modules and equal,
        "A backbone without its method must be the plain model again, but modules or hooks were left behind. Decide "
        "in decide(); never wrap or hook modules of the backbone.",
    )
    return {}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def _modules(module: nn.Module) -> list[tuple[str, type, object, int]]:
    """Every module with its class, its forward and its number of hooks."""
    return [
        # A patched `forward` is another function, so its identity tells.
        (name, type(part), part.forward.__func__, len(part._forward_hooks) + len(part._forward_pre_hooks))
        for name, part in module.named_modules()
    ]


@check("identity", needs=("builds", "determinism"))
def identity(subject: Subject) -> Facts:
    """At skip-nothing every token executes everything, read or written, and logits are the backbone's, bit for bit.

    A method whose decisions carry a scale (a gate, a router) scales branches even then. Its logits must be those of the
    plain Hugging Face model with exactly these scales applied by hooks.
    """
    model, text = subject.model(), subject.text(14, 14, 14, prompt=6)
    backbone = model.backbone_model
    with torch.no_grad(), recorded_decisions(model.method) as decisions:
        logits = model(**text.arguments).logits
    skipped = [site for site, decision in decisions if decision.keep is not None and not bool(decision.keep.all())]
    demand(
        not skipped,
        f"At dial {model.dial:g} (skip_nothing) no token may skip, but some do at {_named(skipped)}. Return "
        "EXECUTE_ALL there.",
    )
    # Scores that tie, and calls of a single token, are where rankings and quantiles go wrong.
    for name, rows in {"three rows": [0, 1, 2], "rows of the same tokens": [0, 0, 0], "one row": [0]}.items():
        saved = saved_by_phase(model, text.rows(rows), 6)
        demand(
            max(saved.values()) == 0.0,
            f"At dial {model.dial:g} (skip_nothing) cached decoding must skip nothing either, but with {name} the "
            f"prompt saves {saved['prompt']:.1%} and writing saves {saved['writing']:.1%} of the token-branches. A "
            "rule that ranks the tokens of a call has to hold for calls of one token, and for equal scores.",
        )
    if any(decision.scale is not None or decision.input_scale is not None for _, decision in decisions):
        with torch.no_grad():
            worst = difference(logits, _replayed_logits(backbone, text.input_ids, decisions))
        demand(
            worst <= TOLERANCE,
            "At skip-nothing the model must be the backbone with its branches scaled as decided, but logits differ by "
            f"{worst:.2g}. Change hidden states through Decision.scale and input_scale alone.",
        )
        return {"identity": "scaled"}
    with torch.no_grad():
        plain = backbone(text.input_ids).logits
        dense = AdaptiveModel.build(backbone, "dense").eval()
        prompt = subject.text(9, 5, 7)
        same = new_tokens(dense, prompt.input_ids, prompt.attention_mask, max_new_tokens=6) == new_tokens(
            model, prompt.input_ids, prompt.attention_mask, max_new_tokens=6
        )
    demand(
        torch.equal(logits, plain) and same,
        f"At skip-nothing a method without scales gives the backbone's logits and generations bit for bit; logits "
        f"differ by {difference(logits, plain):.2g}, generations are {'equal' if same else 'different'}. Leave the "
        "hidden states alone in decide().",
    )
    return {"identity": "exact"}


def _replayed_logits(
    backbone: PreTrainedModel, input_ids: Tensor, decisions: Sequence[tuple[Site, Decision]]
) -> Tensor:
    """Logits [B, S, V] of the plain model on texts [B, S] without padding, with every branch executed and scaled as
    decided. There is one decision for each site that decides; its `keep` is ignored.
    """
    family, handles = find_family(backbone.config.model_type), list[Any]()
    try:
        for site, decision in decisions:
            layer: Any = backbone.model.layers[site.layer]
            scale, input_scale = decision.scale, decision.input_scale
            if site.branch == "layer":
                if scale is not None:
                    handles.append(layer.register_forward_hook(_scale_update(scale)))
                continue
            module = layer.self_attn if site.branch == "attention" else layer.mlp
            before, after = family.norm_before.get(site.branch), family.norm_after.get(site.branch)
            if input_scale is not None and before is not None:
                handles.append(getattr(layer, before).register_forward_hook(_scale_output(input_scale)))
            elif input_scale is not None:  # no module's output is the branch's input, so the input itself is scaled
                handles.append(module.register_forward_pre_hook(_scale_input(input_scale), with_kwargs=True))
            if scale is not None:
                adds = module if after is None else getattr(layer, after)
                handles.append(adds.register_forward_hook(_scale_output(scale)))
        return backbone(input_ids).logits
    finally:
        for handle in handles:
            handle.remove()


def _scale_output(scale: Tensor) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        # Attention returns its weights as well.
        return (output[0] * scale, *output[1:]) if isinstance(output, tuple) else output * scale

    return hook


def _scale_input(scale: Tensor) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if inputs:  # an MLP gets its states as a positional argument, attention by name
            return (inputs[0] * scale, *inputs[1:]), named
        return inputs, named | {"hidden_states": named["hidden_states"] * scale}

    return hook


def _scale_update(scale: Tensor) -> Any:
    # `output - inputs[0]` is what the layer adds to the stream.
    return lambda module, inputs, output: inputs[0] + scale * (output - inputs[0])


def _named(sites: list[Site]) -> str:
    names = list(dict.fromkeys(f"layer {site.layer} {site.branch}" for site in sites))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


BACKBONES = {
    tiny_backbone: f"at a width of {SIZES['hidden_size']}",
    wide_backbone: f"at a width of {WIDTH}",
    massive_backbone: f"at a width of {WIDTH} with massive activations",
}
ROWS, STEPS = 24, 100  # STEPS: length of the schedule whose first step is looked at
SAMPLED = 0.03  # share of token-branches that sampled choices leave out if they lean towards "execute" by 5


@check("intact", needs=("builds", "determinism", "identity"))
def intact(subject: Subject) -> Facts:
    """An untrained model is the backbone, narrow or wide, with massive activations or without, or says why not: its
    logits at skip-nothing are the backbone's, the dial's next value skips nothing either, nor does training at first.

    Otherwise a fine-tuning would start from a damaged model. In a tiny model, random gates and routers of a fixed
    deviation do no visible harm, but their sums grow with the width and with the residual stream that they read. In
    real Llamas a few channels, and the first token, are hundreds or thousands of times as large as the rest.
    """
    method = subject.build().method
    declared = method.initial_change(method.config)
    for make, where in BACKBONES.items():
        backbone, text = subject.backbone(make), subject.text(*[10] * ROWS, prompt=4)
        # Massive activations belong to this token, see `massive_backbone`.
        text.input_ids[:, 0] = BOS
        built, at_once = AdaptiveModel.build(backbone, subject.spec, seed=SEED), subject.declared_class != "C0"
        _same_logits(built, backbone, text, declared, where, at_once=at_once)
        _same_start(AdaptiveModel.build(backbone, subject.training_spec, seed=SEED), text, declared, where)
    return {"start": "intact" if declared is None or not declared.bound else "changed"}


@torch.no_grad()
def _same_logits(
    model: AdaptiveModel,
    backbone: PreTrainedModel,
    text: Text,
    declared: InitialChange | None,
    where: str,
    *,
    at_once: bool,
) -> None:
    """Demands the backbone's logits at skip-nothing, and a dial that does not jump there.

    The dial of a method that decides on whole sequences (`at_once`) may jump.
    """
    plain, logits = backbone(text.input_ids).logits, model.eval()(**text.arguments).logits
    worst, spread = difference(logits, plain), float((logits - plain).std() / plain.std())
    if declared is None or not declared.bound:
        demand(
            worst <= TOLERANCE,
            f"Before training, at skip-nothing, the model must be the backbone, but {where} logits differ by "
            f"{worst:.2g}. Start gates and routers where they multiply by 1, whatever they read; if the method is "
            "meant to start otherwise, let initial_change() give the reason and a bound.",
        )
    else:
        demand(
            worst > TOLERANCE,
            f"initial_change() says that an untrained model is not the backbone ({declared.reason}), but {where} its "
            "logits are the backbone's. Leave it out.",
        )
        demand(
            spread <= declared.bound,
            f"initial_change() promises that logits change by no more than {declared.bound:g} of their standard "
            f"deviation before training, but {where} it is {spread:.2g}. Start closer to 1, or raise the bound.",
        )
    # Other dials promise a saving at every value, or move in steps, for example by a whole token of a sequence.
    if model.method.solves_dial and model.method.fitted is None and not at_once:
        model.dial = model.method.dial.at(NARROWEST)  # the next value that a bisection can reach
        skipped = _skipped(model, text)
        demand(
            skipped <= SLACK,
            f"A dial must not jump at its end, but {where} an untrained model skips {skipped:.1%} of what may skip at "
            f"{model.dial:g}, next to {model.method.dial.skip_nothing:g}. Let routers read view.normed or "
            "view.levelled, not view.hidden.",
        )


def _same_start(model: AdaptiveModel, text: Text, declared: InitialChange | None, where: str) -> None:
    """Demands that the first training step leaves nothing out, or at most the declared share."""
    if not model.method.trains:
        return
    model.prepare_training([CALIBRATION_TEXT.to(model.device).arguments])
    model.train().begin_step(1, STEPS)
    skipped, most = _skipped(model, text), declared.skipped if declared is not None else 0.0
    demand(
        skipped <= max(SAMPLED, most),
        f"Training starts from the model as it is, but {where} its first step leaves out {skipped:.1%} of what may "
        "skip. Let routers start at execute and read view.normed or view.levelled, not view.hidden; if the method is "
        "meant to start otherwise, let initial_change() give the reason and the share as `skipped`.",
    )


@torch.no_grad()
def _skipped(model: AdaptiveModel, text: Text) -> float:
    """Share of the token-branches at eligible sites that a call leaves out, by a mask or by a factor of 0."""
    labels = text.input_ids.masked_fill(~text.continuation_mask, IGNORED_LABEL)
    with recorded_decisions(model.method) as decisions:
        model(**text.arguments, labels=labels if model.training else None)
    left_out = 0
    for site, decision in decisions:
        assert decision.keep is not None  # `recorded_decisions` makes masks of all decisions
        # A router in training executes all tokens and multiplies by 0 what it skips.
        ran = decision.keep if decision.scale is None else decision.keep & (decision.scale != 0).any(dim=-1)
        left_out += int((text.valid & ~ran).sum()) * (2 if site.branch == "layer" else 1)  # a layer has two branches
    return left_out / max(1, len(model.method.eligible_sites) * int(text.valid.sum()))
