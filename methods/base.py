"""The base as it is: the pretrained model, dense and not fine-tuned. The control that says what training is worth.

Idea: whatever a method keeps of the fine-tuned model's quality counts only above what the model could do before.
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
