"""Projects what the recorded decisions of a small model would save on a model of real size; it measures nothing.

A nano model is not priced like a real one: its head and its scalar gates cost another share of a layer. A record holds
the counts behind its MACs (tokens per branch, repaired K,V, query-key pairs, runs of the head, of probes and of each
linear map of the method). These counts are priced again here:

* Every measured layer costs as much as a layer of the real model and stands for all real layers at its relative depth.
  Its keep shares are taken over.
* The method's linear maps have the sizes they get when the method is built for the real widths (without memory). They
  belong to layers: twice the layers, twice the gates.
* The head and its probes cost what the real head costs, and cosines of states what the real width costs. The number of
  probes stays: exits lie at the same relative depths, so a deeper model has as many exits, farther apart
  (`exit_interval`).

The projection is approximate. It keeps the pattern of executed tokens, although a larger model would decide otherwise,
and the length of texts in tokens, and with it the query-key pairs and the measured model's windows. A projection onto
the measured model itself is exact: it gives back the measured net saving.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache, lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone, LayerCosts
from adaptive_bench.engine.ledger import PHASES, Ledger, cosine_macs, saved_shares
from adaptive_bench.errors import UsageError
from adaptive_bench.method import method_class, method_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import COSINE, NORM, RESCALE, Evaluation

# Sizes of real models, from the `config.json` files of the Hugging Face hub.
_KEYS = (
    *("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings"),
)
_SIZES = {
    "llama-3.2-1b": ("llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, True),  # meta-llama/Llama-3.2-1B
    "llama-3.2-3b": ("llama", 3072, 28, 24, 8, 128, 8192, 128256, 131072, True),  # meta-llama/Llama-3.2-3B
    "llama-3.1-8b": ("llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, False),  # meta-llama/Llama-3.1-8B
    "gemma-2-2b": ("gemma2", 2304, 26, 8, 4, 256, 9216, 256000, 8192, True),  # google/gemma-2-2b
}
SHAPES: Mapping[str, Mapping[str, Any]] = {name: dict(zip(_KEYS, row, strict=True)) for name, row in _SIZES.items()}
_OWN_MAP = "method."


@cache
def find_shape(name: str) -> PretrainedConfig:
    """The shape of this name as a Hugging Face config.

    Raises:
        UsageError: No shape has this name.
    """
    if name not in SHAPES:
        raise UsageError(f"No model shape is called {name!r}. {registry.did_you_mean(name, SHAPES)}")
    return AutoConfig.for_model(**SHAPES[name])


class Projection:
    """Prices the counts of one method on another model.

    The model is cut to as many layers as the measured model has, each of which stands for `depth` real layers.
    """

    def __init__(self, spec: MethodSpec, backbone: Backbone, depth: float) -> None:
        self.backbone = backbone
        with torch.device("meta"):
            method = method_of(spec, self.backbone)
        self._map_macs = {
            f"{_OWN_MAP}{name}": module.weight.numel()
            for name, module in method.named_modules()
            if isinstance(module, nn.Linear)
        }
        self._depth = depth
        self._costs = LayerCosts(*(depth * costs for costs in astuple(self.backbone.costs)))

    def net(self, counts: Mapping[str, Any]) -> dict[str, float | None]:
        """Projected net savings by phase (`all`, `prefill`, `decode`); `None` for a phase without tokens.

        Args:
            counts: The raw sums of a compute report.
        """
        ledger, hidden_size = Ledger(self._costs), self.backbone.hidden_size
        for phase in PHASES:
            ledger.work[phase] += np.array(counts[phase]["work"])
            runs = dict(counts[phase]["runs"])
            head = runs.pop("head", 0.0) * self.backbone.head_macs
            ledger.book(phase, ledger.num_layers, "core.head", head)
            ledger.book_dense_head(phase, head)  # the dense model needs as many logits
            deciding = runs.pop("probe", 0.0) * self.backbone.head_macs
            deciding += runs.pop(COSINE, 0.0) * cosine_macs(hidden_size)
            deciding += runs.pop(NORM, 0.0) * hidden_size
            rescaled = runs.pop(RESCALE, 0.0) * hidden_size
            # Booked on layer 0, as only sums over layers are read.
            ledger.book(phase, 0, "overhead.adapter", self._depth * rescaled)
            own = sum(tokens * self._map_macs[name] for name, tokens in runs.items())
            ledger.book(phase, 0, "overhead.decision", deciding + self._depth * own)
        saved = saved_shares(ledger.counts())
        return {"all": saved["saved"]["net"], **{phase: saved[phase]["net"] for phase in PHASES}}


def projected(spec: MethodSpec, evaluations: Sequence[Evaluation], shape: str) -> tuple[list[Evaluation], list[str]]:
    """Evaluations of one method with their net saving projected onto a shape.

    If the method cannot be built at the shape's widths, all stay as they are, and the second value says why: the table
    is written all the same.

    Raises:
        UsageError: No shape has that name.
    """
    find_shape(shape)
    found, counts = list(evaluations), [one.report["counts"] for one in evaluations]
    if not found:
        return [], []
    try:
        layers = len(counts[0]["prefill"]["work"])
        projection = _projection(cast(Hashable, method_class(spec)), spec, layers, shape)
        nets = list(map(projection.net, counts))
    except Exception as error:  # noqa: BLE001 - this builds the method, and a plugin's method may raise anything
        reason = f"{type(error).__name__}: {error}"
        return found, [
            f"{spec}: no projection onto {shape}, because the method cannot be built at its widths ({reason})."
        ]
    return [replace(one, projected=net, projected_shape=shape) for one, net in zip(found, nets, strict=True)], []


# Seeds and targets of a spec share a projection. The class is an argument because a notebook may register another class
# under the same name.
@lru_cache(maxsize=1024)
def _projection(registered: Hashable, spec: MethodSpec, layers: int, shape: str) -> Projection:
    return Projection(spec, *_named(shape, layers))


@lru_cache(maxsize=8)  # a run has many methods and few shapes
def _named(shape: str, layers: int) -> tuple[Backbone, float]:
    return priced(find_shape(shape), layers)


def priced(shape: PretrainedConfig, layers: int) -> tuple[Backbone, float]:
    """A backbone of the same widths with `layers` layers and no values, and how many real layers each stands for."""
    values = shape.to_dict() | {"num_hidden_layers": layers, "layer_types": None}
    with torch.device("meta"):
        backbone = Backbone(AutoModelForCausalLM.from_config(type(shape).from_dict(values)))
    return backbone, shape.num_hidden_layers / layers
