"""What a decision may look at: the causality class, probed and held against what the method has to be."""

from __future__ import annotations

import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference, generated_tokens, logits_of
from adaptive_bench.testing.subject import Subject

LENGTHS = (13, 7, 10, 13)


@check("batching", needs=("determinism",), rounding=True)
def batching(subject: Subject) -> Facts:
    """A row's logits and generation do not depend on batchmates, their order, or padding on either side.

    A method of class C2 depends on its batchmates; it is shown to, so that the label stays honest.
    """
    model, right = subject.model(), subject.text(*LENGTHS, side="right")
    left, prompts = subject.text(*LENGTHS), subject.text(8, 4, 6, seed=3)
    alone = [_row(right, row) for row in range(len(LENGTHS))]
    order = list(reversed(range(len(LENGTHS))))
    left_padding = batch = True
    worst, at = 0.0, model.dial
    for dial in subject.dials or subject.all_dials:
        model.dial = dial
        wanted = [logits_of(model, text) for text in alone]
        padded = max(difference(logits_of(model, left.rows([row])), wanted[row]) for row in range(len(LENGTHS)))
        together = torch.cat(wanted)
        mixed = max(
            difference(logits_of(model, right), together),
            difference(logits_of(model, left), together),
            difference(logits_of(model, left.rows(order)), torch.cat([wanted[row] for row in order])),
        )
        left_padding &= padded <= TOLERANCE
        batch &= mixed <= TOLERANCE
        worst, at = max((worst, at), (padded, dial), (mixed, dial))
    batch &= generated_tokens(model, prompts) == [generated_tokens(model, prompts.rows([row]))[0] for row in range(3)]
    facts: Facts = {"batch": batch, "left_padding": left_padding}
    if subject.declared_class == "C2":
        demand(
            not batch,
            f"{subject.spec} says of itself that decisions depend on the batch (C2), but no dependence was found. Set "
            "paper_class to what it is.",
        )
        return facts
    demand(
        left_padding,
        f"Left padding must change nothing, but at dial {at:g} logits of a row alone differ by {worst:.2g} when it is "
        "padded. Rank and average over view.call.valid only, and use view.call.positions, not columns.",
    )
    demand(
        batch,
        f"A row must not depend on its batchmates, but at dial {at:g} logits of rows alone and in a batch differ by "
        f"{worst:.2g}, or their generations do. Compare scores with calibrated thresholds instead of statistics of the "
        "batch; in `paper` semantics, if the paper's rule is like that, declare paper_class = 'C2'.",
    )
    return facts


@check("causality", needs=("determinism", "batching"), rounding=True)
def causality(subject: Subject) -> Facts:
    """Later tokens, changed or missing, leave the logits of earlier ones alone.

    A method of class C1 or C2 looks ahead; it is shown to, so that the label stays honest.
    """
    model, kept = subject.model(), 8
    prompt = 4 if subject.declared_class == "C0" else 12  # who looks ahead may do so in prompts alone
    text, changed = subject.text(15, 15, 15, prompt=prompt), subject.text(15, 15, 15, seed=1, prompt=prompt)
    changed.input_ids[:, :kept] = text.input_ids[:, :kept]
    worst, at = 0.0, model.dial
    for dial in subject.dials or subject.all_dials:
        model.dial = dial
        base = _prefix_logits(model, text, kept)
        others = (_prefix_logits(model, changed, kept), _prefix_logits(model, text.prefix(kept), kept))
        worst, at = max((worst, at), *((difference(base, other), dial) for other in others))
    if subject.declared_class == "C0":
        demand(
            worst <= TOLERANCE,
            f"A decision may look at a token and what precedes it, but at dial {at:g} later tokens move earlier logits "
            f"by {worst:.2g}. Replace top-k and means over the sequence by a threshold or a predictor; in `paper` "
            "semantics, if the paper's rule is like that, declare paper_class = 'C1'.",
        )
        return {"causality": "C0"}
    demand(
        worst > TOLERANCE,
        f"{subject.spec} says of itself that it looks ahead ({subject.declared_class}), but later tokens changed "
        "nothing. Set paper_class to what it is.",
    )
    return {"causality": subject.declared_class}


@torch.no_grad()
def _prefix_logits(model: AdaptiveModel, text: Text, length: int) -> torch.Tensor:
    return model(**text.arguments).logits[:, :length]


def _row(text: Text, row: int) -> Text:
    """One row without its padding on the right."""
    return text.rows([row]).prefix(int(text.attention_mask[row].sum()))
