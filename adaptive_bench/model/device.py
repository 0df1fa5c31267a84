"""Where a model runs."""

from __future__ import annotations

import torch

from adaptive_bench.config import DEVICE_RULE, check_device
from adaptive_bench.errors import UsageError


def find_device(name: str) -> torch.device:
    """The torch device behind `auto`, `cpu`, `cuda:0`, ...

    Raises:
        UsageError: No such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_device(name)
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{DEVICE_RULE}, got {name!r}: {reason}. Set --device, or device= in Python.") from error
    return device
