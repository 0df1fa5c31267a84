"""Mistral: Llama with one sliding window for all layers."""

from typing import Any

from adaptive_bench.backbone.family import Family


def one_window(config: Any, attention: Any) -> int | None:
    """The window that all layers have."""
    window: int | None = config.sliding_window
    return window


MISTRAL = Family("Mistral 7B: one sliding window for all layers", window=one_window, tiny={"sliding_window": 6})
