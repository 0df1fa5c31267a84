"""What rows were made with: versions and devices, which rounding depends on, and with it nearly as likely answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

FACTS = ("adaptive-bench", "torch", "transformers", "lm-eval", "device", "device_name")
_UNKNOWN = "unknown"
_SEPARATOR = "; "
_STRANGE = re.compile(r"[^A-Za-z0-9_ .,+@()\-:]+")  # in the name of a device: boards let nothing else in


def made_with(about: Iterable[Mapping[str, Any]]) -> str:
    """The column `made_with` of a row, from what its records say of their environments; each combination once."""
    texts = (", ".join(f"{name} {one.get(name, _UNKNOWN)}" for name in FACTS) for one in about)
    return _SEPARATOR.join(sorted({_STRANGE.sub(" ", text) for text in texts}))


def environments(columns: Iterable[str | None]) -> list[str]:
    """The combinations that some rows name; rows of earlier versions name none where all were alike."""
    return sorted({one for text in columns if text for one in text.split(_SEPARATOR)})


def both(columns: Iterable[str | None]) -> str | None:
    """The column of one row that stands for several."""
    return _SEPARATOR.join(environments(columns)) or None
