"""At skip-nothing a method's model is the backbone."""

from __future__ import annotations

import torch

from adaptive_bench.backbone import Site
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference
from adaptive_bench.testing.checks.writing import saved_by_phase
from adaptive_bench.testing.replay import replayed_logits
from adaptive_bench.testing.subject import Subject


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
            worst = difference(logits, replayed_logits(backbone, text.input_ids, decisions))
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


def _named(sites: list[Site]) -> str:
    names = list(dict.fromkeys(f"layer {site.layer} {site.branch}" for site in sites))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
