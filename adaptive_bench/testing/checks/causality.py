"""Checks what decisions depend on: which part of the text, batchmates, padding, the seed, and the document.

The causality class that is measured must be the declared one. Only methods that draw at random may decide by document.
"""

from __future__ import annotations

import torch

from adaptive_bench.method import document_key
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.checking import TOLERANCE, Facts, check, demand, difference, generated_tokens, logits_of
from adaptive_bench.testing.subject import ShortTraining, Subject, Text

_CHANGES = (
    "The same call must give the same result, but two calls differ. Draw random numbers with "
    "uniform_from(view.call.draw_counters, ...), never from a stream; keep no state in the method between calls."
)

_DOCUMENTS = 32
_SPREAD = 0.8  # least standard deviation over documents, as a share of that of independent draws


@check("determinism", needs=("builds",))
def determinism(subject: Subject) -> Facts:
    """One seed gives the same parameters, the same losses, and at every call the same logits and generations."""
    one, other = subject.build().method.state_dict(), subject.build().method.state_dict()
    differing = [name for name in one.keys() | other.keys() if not torch.equal(one[name], other[name])]
    demand(
        not differing,
        f"Two models built with one seed must be equal, but {', '.join(sorted(differing)[:3])} differ. Initialise with "
        "torch's generator, which is seeded when the method is made, or from the `seed` argument.",
    )
    model, text, prompts = subject.model(), subject.text(12, 9, 5), subject.text(7, 4, seed=6)
    for dial in subject.all_dials:
        model.dial = dial
        demand(torch.equal(logits_of(model, text), logits_of(model, text)), _CHANGES)
    demand(generated_tokens(model, prompts) == generated_tokens(model, prompts), _CHANGES)
    losses = [ShortTraining(subject, total_steps=2).run(1, 2) for _ in range(2)]
    demand(
        losses[0] == losses[1],
        f"Two trainings with one seed must have the same losses, got {losses[0]} and {losses[1]}. Draw random numbers "
        "in training with uniform_from(view.call.draw_counters, draw_key(self.seed, self.step, ...)).",
    )
    return {}


@check("independence", needs=("determinism", "batching"))
def independence(subject: Subject) -> Facts:
    """A method that draws at random draws independently for documents with equal text; any other treats them alike.

    Texts share templates, worked examples and whole questions. If draws depended on the text alone, shared parts would
    get the same decisions, and the saving would rest on a handful of draws, whatever the number of documents.
    """
    model, text = subject.model(), subject.text(16).rows([0] * _DOCUMENTS)  # equal texts, so only documents differ
    keys = torch.tensor([document_key("check", number) for number in range(_DOCUMENTS)], device=subject.device)
    for dial in subject.dials or subject.all_dials:
        model.dial = dial
        kept = _kept(model, text, keys)
        if not model.draws:
            demand(
                torch.equal(kept, _kept(model, text, torch.zeros_like(keys))),
                f"Decisions must not depend on which document a text is of, but at dial {dial:g} they do. If the "
                "method draws at random, set draws = True in its class.",
            )
            continue
        order = torch.arange(_DOCUMENTS, device=subject.device).flip(0)
        demand(
            subject.declared_class == "C2" or torch.equal(_kept(model, text, keys[order]), kept[:, order]),
            f"A document's draws must be its own, but at dial {dial:g} they depend on its row in the batch. Draw from "
            "view.call.draw_counters.",
        )
        within_texts, independent = _disagreement(kept)
        demand(
            within_texts >= _SPREAD**2 * independent,
            f"Documents must draw independently, also where their texts are alike, but at dial {dial:g} two documents "
            f"with one text differ in {within_texts:.1%} of the decisions, where independent draws differ in "
            f"{independent:.1%}. Draw from view.call.draw_counters, not from the text, positions or prefix_hash.",
        )
    return {}


@torch.no_grad()
def _kept(model: AdaptiveModel, text: Text, documents: torch.Tensor) -> torch.Tensor:
    """[sites, B, S] which tokens execute."""
    with recorded_decisions(model.method) as decisions:
        model(**text.arguments, documents=documents)
    return torch.stack([decision.keep for _, decision in decisions if decision.keep is not None])


def _disagreement(kept: torch.Tensor) -> tuple[float, float]:
    """Share of a token's decisions in which two of B documents differ, and the same share for independent draws at
    each site's rate.
    """
    kept = kept.double()
    documents = kept.shape[1]
    executed, rates = kept.mean(dim=1), kept.mean(dim=(1, 2))
    # With the share p of documents that execute, two documents differ with probability 2 p (1 - p); the factor leaves
    # out pairs of a document with itself.
    within_texts = 2 * executed * (1 - executed) * documents / (documents - 1)
    return float(within_texts.mean()), float((2 * rates * (1 - rates)).mean())


LENGTHS = (13, 7, 10, 13)


@check("batching", needs=("determinism",), rounding=True)
def batching(subject: Subject) -> Facts:
    """A row's logits and generation do not depend on batchmates, their order, or padding on either side.

    A method of class C2 must depend on its batchmates, so that its label stays true.
    """
    model, right = subject.model(), subject.text(*LENGTHS, side="right")
    left, prompts = subject.text(*LENGTHS), subject.text(8, 4, 6, seed=3)
    alone = [_row(right, row) for row in range(len(LENGTHS))]
    order = list(reversed(range(len(LENGTHS))))
    left_padding = batch = True
    worst, at = 0.0, model.dial
    for dial in subject.dials or subject.all_dials:
        model.dial = dial
        # Real tokens row after row, so that the rows' own logits joined are those of a batch.
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
        worst, at = max((worst, at), (padded, dial), (mixed, dial))  # the largest difference and its dial
    batch &= generated_tokens(model, prompts) == [generated_tokens(model, prompts.rows([row]))[0] for row in range(3)]
    facts: Facts = {"batch": batch, "left_padding": left_padding}
    if subject.declared_class == "C2":
        demand(
            not batch,
            f"{subject.spec} declares that its decisions depend on the batch (C2), but no dependence was found. Set "
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

    A method of class C1 or C2 must look ahead, so that its label stays true.
    """
    model, kept = subject.model(), 8
    prompt = 4 if subject.declared_class == "C0" else 12  # a method may look ahead in prompts alone
    text, changed = subject.text(15, 15, 15, prompt=prompt), subject.text(15, 15, 15, seed=1, prompt=prompt)
    changed.input_ids[:, :kept] = text.input_ids[:, :kept]  # the same tokens first, others after them
    worst, at = 0.0, model.dial
    for dial in subject.dials or subject.all_dials:
        model.dial = dial
        base = _prefix_logits(model, text, kept)
        # Later tokens changed, and missing.
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
        f"{subject.spec} declares that it looks ahead ({subject.declared_class}), but later tokens changed "
        "nothing. Set paper_class to what it is.",
    )
    return {"causality": subject.declared_class}


@torch.no_grad()
def _prefix_logits(model: AdaptiveModel, text: Text, length: int) -> torch.Tensor:
    return model(**text.arguments).logits[:, :length]


def _row(text: Text, row: int) -> Text:
    """One row without its padding on the right."""
    return text.rows([row]).prefix(int(text.attention_mask[row].sum()))
