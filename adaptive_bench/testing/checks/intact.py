"""Whether attaching a method to a pretrained model leaves the model as it was, before any training."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from adaptive_bench.method import InitialChange
from adaptive_bench.method.dial import NARROWEST
from adaptive_bench.method.dial import TOLERANCE as SLACK
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.backbones import BOS, SIZES, WIDTH, Text, massive_backbone, tiny_backbone, wide_backbone
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference
from adaptive_bench.testing.subject import CALIBRATION_TEXT, SEED, Subject
from adaptive_bench.training.encoding import IGNORED_LABEL

BACKBONES = {
    tiny_backbone: f"at a width of {SIZES['hidden_size']}",
    wide_backbone: f"at a width of {WIDTH}",
    massive_backbone: f"at a width of {WIDTH} with massive activations",
}
ROWS, STEPS = 24, 100
SAMPLED = 0.03  # of the token-branches: what sampled choices leave out that lean towards "execute" by 5


@check("intact", needs=("builds", "determinism", "identity"))
def intact(subject: Subject) -> Facts:
    """An untrained model is the backbone, narrow or wide, with massive activations or without, or says why not: its
    logits at skip-nothing are the backbone's, the dial's next value skips nothing either, nor does training at first.

    A fine-tuning would start from a damaged model otherwise. Random gates and routers of a fixed deviation hide in tiny
    models: their sums grow with the width, and with the residual stream that they read. In real Llamas a few channels,
    and the first token, are hundreds and thousands of times the rest.
    """
    method = subject.build().method
    declared = method.initial_change(method.config)
    for make, where in BACKBONES.items():
        backbone, text = subject.backbone(make), subject.text(*[10] * ROWS, prompt=4)
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
    """At skip-nothing; and the dial does not jump there, unless sequences are decided on `at_once`."""
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
    # Other dials promise a saving at every value, or move in steps: a whole token of a sequence, say.
    if model.method.solves_dial and model.method.fitted is None and not at_once:
        model.dial = model.method.dial.at(NARROWEST)
        skipped = _skipped(model, text)
        demand(
            skipped <= SLACK,
            f"A dial must not jump at its end, but {where} an untrained model skips {skipped:.1%} of what may skip at "
            f"{model.dial:g}, next to {model.method.dial.skip_nothing:g}. Let routers read view.normed or "
            "view.levelled, not view.hidden.",
        )


def _same_start(model: AdaptiveModel, text: Text, declared: InitialChange | None, where: str) -> None:
    """At the first step of a training nothing is left out, or as much as is declared."""
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
    """Share of the token-branches at eligible sites that a call leaves out, by masks or by factors of 0."""
    labels = text.input_ids.masked_fill(~text.continuation_mask, IGNORED_LABEL)
    with recorded_decisions(model.method) as decisions:
        model(**text.arguments, labels=labels if model.training else None)
    left_out = 0
    for site, decision in decisions:
        assert decision.keep is not None
        ran = decision.keep if decision.scale is None else decision.keep & (decision.scale != 0).any(dim=-1)
        left_out += int((text.valid & ~ran).sum()) * (2 if site.branch == "layer" else 1)
    return left_out / max(1, len(model.method.eligible_sites) * int(text.valid.sum()))
