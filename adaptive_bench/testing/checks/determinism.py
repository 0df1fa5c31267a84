"""The same seed is the same method."""

from __future__ import annotations

import torch

from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import demand, logits_of, written
from adaptive_bench.testing.subject import Subject
from adaptive_bench.testing.training import ShortTraining

_CHANGES = (
    "The same call must give the same result, but two calls differ. Draw random numbers with "
    "adaptive_bench.model.randomness, which hashes the text, never from a stream; keep no state in the method between "
    "calls."
)


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
    demand(written(model, prompts) == written(model, prompts), _CHANGES)
    losses = [ShortTraining(subject, total_steps=2).run(1, 2) for _ in range(2)]
    demand(
        losses[0] == losses[1],
        f"Two trainings with one seed must have the same losses, got {losses[0]} and {losses[1]}. Draw random numbers "
        "in training with adaptive_bench.model.randomness, keyed by step.",
    )
    return {}
