"""A model that keeps the residual stream after every layer of its last call."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adaptive_bench.method import Decision, SiteView
from adaptive_bench.model import AdaptiveModel


class WatchedModel(AdaptiveModel):
    """For a method that decides per layer.

    Attributes:
        states: [B, S, H] after each of the L layers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.states: list[Tensor] = []
        self.method.listeners.append(self._listen)

    def _listen(self, view: SiteView, decision: Decision) -> None:
        if view.site.layer == 0:
            self.states = []  # what enters the first layer is no layer's output
        else:
            self.states.append(view.hidden)

    def _logits(self, call: Any, hidden: Tensor, chosen: tuple[Any, Any]) -> Tensor:
        self.states.append(hidden)
        return super()._logits(call, hidden, chosen)
