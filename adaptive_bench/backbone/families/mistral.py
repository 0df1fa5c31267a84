"""Mistral: Llama with one sliding window for all layers."""

from typing import Any

from adaptive_bench.backbone.family import Family


def _window(config: Any, attention: Any) -> int | None:
    window: int | None = config.sliding_window
    return window


MISTRAL = Family("Mistral 7B: one sliding window for all layers", window=_window, tiny={"sliding_window": 6})
