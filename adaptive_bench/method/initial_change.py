"""What a method says of itself where attaching it to a pretrained model changes the model before any training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InitialChange:
    """How far an untrained model that skips nothing is from the backbone.

    Attributes:
        reason: Why the method starts so, in a sentence, with its source.
        bound: Standard deviation of the change of a logit, as a share of the logits' own, that is not exceeded at any
            width the conformance suite tries.
    """

    reason: str
    bound: float
