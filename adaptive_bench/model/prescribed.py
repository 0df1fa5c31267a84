"""Decisions that are told from outside: how oracles and static sets are executed and counted like any method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.backbone import Backbone
from adaptive_bench.method import (
    EXECUTE_ALL,
    Decision,
    DialSpec,
    ForwardCall,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
    SiteView,
)
from adaptive_bench.model import AdaptiveModel

Rule = Callable[[SiteView], Tensor | None]
# What an oracle knows of other tokens may lie anywhere in the text: the harness then computes every request by itself.
_LOOKS_AHEAD: Literal["C1"] = "C1"


class Prescribed(Method):
    """Asks a rule that somebody set. It is not registered: an oracle is no method.

    Attributes:
        rule: Tokens [B, S] that execute a site, `None` for all.
    """

    paper_class: ClassVar[Literal["C1"]] = _LOOKS_AHEAD

    def __init__(
        self, backbone: Backbone, *, unit: Literal["branch", "layer"], kv: KVPolicy, looks_ahead: bool
    ) -> None:
        super().__init__(MethodConfig(), backbone, "paper" if looks_ahead else "bench", 0)
        self.unit = unit  # type: ignore[misc]  # of this one, not of the class
        self._kv = kv
        self.rule: Rule = _everybody

    @property
    def dial(self) -> DialSpec:
        """There is none."""
        return DialSpec("none", 0.0, 0.0, 0.0)

    @property
    def kv_policy(self) -> KVPolicy:
        """As told."""
        return self._kv

    def decide(self, view: SiteView) -> Decision:
        """What the rule says."""
        keep = self.rule(view)
        return EXECUTE_ALL if keep is None else Decision(keep=keep)


class StaticSet(Prescribed):
    """Leaves out the same layers for every token; they store nothing, as in `static_depth`."""

    def __init__(self, backbone: Backbone, skipped: Collection[int]) -> None:
        super().__init__(backbone, unit="layer", kv="evict", looks_ahead=False)
        self.skipped = frozenset(skipped)

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Nobody or everybody."""
        nobody = Decision(keep=torch.zeros_like(call.valid))
        return [nobody if layer in self.skipped else EXECUTE_ALL for layer in range(self.backbone_size[0])]

    def decide(self, view: SiteView) -> Decision:
        """As known before."""
        return Method.decide(self, view)


def _everybody(view: SiteView) -> None:
    return None


def prescribed_model(
    backbone_model: PreTrainedModel,
    *,
    unit: Literal["branch", "layer"] = "layer",
    kv: KVPolicy = "recompute",
    looks_ahead: bool = False,
    kind: type[AdaptiveModel] = AdaptiveModel,
    label: str = "oracle",
) -> Any:
    """A model whose method is a `Prescribed`, in `eval()` mode; `label` is what progress displays call it."""
    method = Prescribed(Backbone(backbone_model), unit=unit, kv=kv, looks_ahead=looks_ahead)
    return kind(backbone_model, method, MethodSpec(label)).eval()


def static_model(backbone_model: PreTrainedModel, skipped: Collection[int]) -> AdaptiveModel:
    """A model that never runs some layers, in `eval()` mode."""
    method = StaticSet(Backbone(backbone_model), skipped)
    name = "without_layers_" + "_".join(map(str, sorted(skipped))) if skipped else "all_layers"
    return AdaptiveModel(backbone_model, method, MethodSpec(name)).eval()
