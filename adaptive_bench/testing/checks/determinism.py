"""The same seed is the same method; of one that draws at random, another document is another draw."""

from __future__ import annotations

import torch

from adaptive_bench.method import document_key
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import demand, generated_tokens, logits_of
from adaptive_bench.testing.subject import Subject
from adaptive_bench.testing.training import ShortTraining

_CHANGES = (
    "The same call must give the same result, but two calls differ. Draw random numbers with "
    "uniform_from(view.call.draw_counters, ...), never from a stream; keep no state in the method between calls."
)

_DOCUMENTS = 32
_SPREAD = 0.8  # standard deviation over documents, as a share of that of independent draws


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

    Texts share templates, worked examples and whole questions. With draws of the text alone they share the fate of
    what they share, and the saving is that of a handful of draws, whatever the number of documents.
    """
    model, text = subject.model(), subject.text(16).rows([0] * _DOCUMENTS)
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
    """[sites, B, S] who executes."""
    with recorded_decisions(model.method) as decisions:
        model(**text.arguments, documents=documents)
    return torch.stack([decision.keep for _, decision in decisions if decision.keep is not None])


def _disagreement(kept: torch.Tensor) -> tuple[float, float]:
    """Share of a token's decisions in which two of B documents differ, and what it would be with independent draws of
    each site's rate.
    """
    kept = kept.double()
    documents = kept.shape[1]
    executed, rates = kept.mean(dim=1), kept.mean(dim=(1, 2))
    within_texts = 2 * executed * (1 - executed) * documents / (documents - 1)
    return float(within_texts.mean()), float((2 * rates * (1 - rates)).mean())
