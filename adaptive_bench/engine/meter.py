"""Counts what a method's own linear maps cost, whoever calls them."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn


class DecisionMeter:
    """Counts the MACs of every `nn.Linear` inside a method."""

    def __init__(self, method: nn.Module) -> None:
        self.macs = 0
        for module in method.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self._count)

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.macs += inputs[0].numel() * cast(nn.Linear, module).out_features
