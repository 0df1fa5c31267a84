"""Names the versions and devices that rows were made with: rounding depends on them, and may decide near-ties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

FACTS = ("adaptive-bench", "torch", "transformers", "lm-eval", "device", "device_name")
_UNKNOWN = "unknown"
_SEPARATOR = "; "
_STRANGE = re.compile(r"[^A-Za-z0-9_ .,+@()\-:]+")  # characters of a device name that boards do not accept


def made_with(about: Iterable[Mapping[str, Any]]) -> str:
    """Return a row's column `made_with` from the environments of its records, each combination once."""
    texts = (", ".join(f"{name} {one.get(name, _UNKNOWN)}" for name in FACTS) for one in about)
    return _SEPARATOR.join(sorted({_STRANGE.sub(" ", text) for text in texts}))


def environments(columns: Iterable[str | None]) -> list[str]:
    """Return the combinations that some rows name; rows of earlier versions name none if all were alike."""
    return sorted({one for text in columns if text for one in text.split(_SEPARATOR)})


def both(columns: Iterable[str | None]) -> str | None:
    """Return the column `made_with` of one row that stands for several."""
    return _SEPARATOR.join(environments(columns)) or None
