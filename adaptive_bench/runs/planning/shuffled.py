"""Which methods of a run are measured a second time, with the decisions of other tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.method import method_class, why_not_shuffled
from adaptive_bench.spec import MethodSpec

# Raise it when the control's outputs move (`engine.shuffling`), or where they are measured.
VERSION = 2
_AT_OWN_DIALS = 2  # since that version
# What the key of such an evaluation has beside those of the method's own.
SHUFFLED: Mapping[str, Any] = {"variant": "shuffled", "shuffled": VERSION}


def follows_method(content: Mapping[str, Any]) -> bool:
    """Whether an evaluation, by what its key is made of, is a control that is measured at its method's dial values."""
    return content.get("variant") == SHUFFLED["variant"] and content.get("shuffled", 1) >= _AT_OWN_DIALS


def has_control(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a run measures the control of shuffled decisions of a spec."""
    return config.shuffled and method_class(spec).adapts and why_not_shuffled(spec) is None


def without_control(config: RunConfig) -> list[str]:
    """One sentence for each method of a run whose control was asked for and cannot be had. Those that treat all tokens
    alike need none.
    """
    specs = map(MethodSpec.parse, config.methods if config.shuffled else ())
    here = registry.names("methods")  # of a method that is not, nobody knows
    return [
        f"{spec} has no control of shuffled decisions: a token can have another token's decisions where each is "
        f"decided for itself, but {why}."
        for spec in specs
        if spec.name in here and method_class(spec).adapts and (why := why_not_shuffled(spec))
    ]
