"""Parts that several outputs have: shares of saved compute, and what a time was measured on."""

from __future__ import annotations

from typing_extensions import TypedDict


class SavedShares(TypedDict):
    """Shares saved of the dense model, below 1, negative where more was spent; `null` where there are no tokens.

    Attributes:
        tokens: Of token-branches.
        core: Of FLOPs of the model's own branches and head.
        net: The same with what deciding, repairing the KV cache and adapters cost.
        executed: Of all FLOPs that ran.
        weight_bytes: Of bytes of weights read.
    """

    tokens: float | None
    core: float | None
    net: float | None
    executed: float | None
    weight_bytes: float | None


# Names of packages are no identifiers: such types are made by a call.
Environment = TypedDict(
    "Environment",
    {
        "machine": str,
        "system": str,
        "python": str,
        "adaptive-bench": str,
        "torch": str,
        "transformers": str,
        "lm-eval": str,
        "accelerate": str,
        "datasets": str,
        "device": str,
        "device_name": str,
        "threads": int,
        "precision": str,
    },
)
