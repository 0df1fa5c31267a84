"""Whether attaching a method to a pretrained model leaves the model as it was, before any training."""

from __future__ import annotations

import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference
from adaptive_bench.testing.subject import SEED, Subject


@check("intact", needs=("builds", "determinism", "identity"))
def intact(subject: Subject) -> Facts:
    """An untrained model that skips nothing has the backbone's logits, narrow or wide, or the method says why not.

    A fine-tuning would start from a damaged model otherwise. Random gates and routers of a fixed deviation hide in tiny
    models: their sums grow with the width.
    """
    method = subject.build().method
    declared = method.initial_change(method.config)
    for backbone in (subject.backbone(), subject.backbone(wide=True)):
        model, text = AdaptiveModel.build(backbone, subject.spec, seed=SEED).eval(), subject.text(14, 14, 14, prompt=6)
        with torch.no_grad():
            plain, logits = backbone(text.input_ids).logits, model(**text.arguments).logits
        worst, spread = difference(logits, plain), float((logits - plain).std() / plain.std())
        where = f"at a width of {backbone.config.hidden_size}"
        if declared is None:
            demand(
                worst <= TOLERANCE,
                f"Before training, at skip-nothing, the model must be the backbone, but {where} logits differ by "
                f"{worst:.2g}. Start gates and routers where they multiply by 1, whatever they read; if the method is "
                "meant to start otherwise, let initial_change() give the reason and a bound.",
            )
            continue
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
    return {"start": "intact" if declared is None else "changed"}
