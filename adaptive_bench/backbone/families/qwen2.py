"""Qwen 2 and 2.5: biases in attention, sliding windows in the upper layers where the config asks for them."""

from adaptive_bench.backbone.family import Family

QWEN2 = Family(
    "Qwen 2, 2.5: biases in attention, windows in the upper layers",
    tiny={"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
)
