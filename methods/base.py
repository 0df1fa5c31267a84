"""The base model as it is: pretrained, dense and not fine-tuned. The control that shows what training is worth.

Idea: the quality a method retains from the fine-tuned model counts only above what the model could do before.
Source, equations, deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from .dense import Dense


class Base(Dense):
    """Executes every branch for every token and trains nothing; its dial has a single value."""

    supports_data_parallel = True
    trains: ClassVar[bool] = False
