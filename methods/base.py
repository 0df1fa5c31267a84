"""The base model as it is: pretrained, dense and not fine-tuned. The control that shows what training is worth.

Idea: the quality a method retains from the fine-tuned model counts only above what the model could do before.
Source, equations, deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from adaptive_bench.method import MethodConfig, MethodSpec

from .dense import Dense


class Base(Dense):
    """Executes everything; nothing is trained."""

    supports_data_parallel = True
    trains: ClassVar[bool] = False

    @classmethod
    def training_spec(cls, config: MethodConfig, spec: MethodSpec) -> MethodSpec:
        """Not the fine-tuned dense model."""
        return MethodSpec("base")
