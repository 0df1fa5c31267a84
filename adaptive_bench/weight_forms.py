"""The forms in which the weights of a model's layers are stored while it is evaluated."""

from __future__ import annotations

from typing import Literal, get_args

Quantization = Literal["none", "int8", "int4", "nf4"]
QUANTIZED: tuple[Quantization, ...] = get_args(Quantization)[1:]
