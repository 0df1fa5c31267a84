"""What a method says of itself where attaching it to a pretrained model changes the model before any training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InitialChange:
    """How far an untrained model is from the backbone, where it skips nothing and where its training starts.

    Attributes:
        reason: Why the method starts so, in a sentence, with its source.
        bound: Standard deviation of the change of a logit at skip-nothing, as a share of the logits' own, that is not
            exceeded on any backbone the conformance suite tries; 0 where logits are the backbone's.
        skipped: Share of the token-branches that may skip which training leaves out at its first step, that is not
            exceeded there either; 0 where it is next to nothing.
    """

    reason: str
    bound: float
    skipped: float = 0.0
