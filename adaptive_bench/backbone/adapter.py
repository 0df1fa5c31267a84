"""`Backbone`: gives the engine the norms and branches of a Hugging Face decoder, and their costs. A `Site` names one.

Hugging Face modules are used unchanged. Module `family` describes how families differ: most normalise a branch's
input; some also normalise its output before it joins the residual stream. A method's scale acts after that post-norm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from adaptive_bench.backbone.family import Family, find_family
from adaptive_bench.backbone.step import RotaryTables, StepArithmetic, query_width
from adaptive_bench.backbone.weights import quantize_layers, stored_bytes
from adaptive_bench.errors import UsageError
from adaptive_bench.validation import Quantization

_ATTENTION = ("eager", "sdpa")  # they take a mask of any shape; other implementations would ignore which tokens skipped
_PARTS = (*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")))
_FUSED_PARTS = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")


Branch = Literal["attention", "mlp", "layer"]
BRANCHES: tuple[Branch, ...] = ("attention", "mlp")  # of a layer, in execution order


class Site(NamedTuple):
    """A place where a method decides: one branch of one layer, or the whole layer."""

    layer: int
    branch: Branch

    @property
    def number(self) -> int:
        """0 .. 2L-1 in execution order; a whole layer has the number of its attention."""
        return 2 * self.layer + (self.branch == "mlp")


def every_branch(layers: Iterable[int]) -> frozenset[Site]:
    """Attention and MLP of some layers."""
    return frozenset(Site(layer, branch) for layer in layers for branch in BRANCHES)


def described(sites: Collection[Site]) -> str:
    """The sites in words: `layers 1-7`, `attention of layers 3-6`, `layers 1, 3, 5`; `none` if there are none."""
    layers = {branch: sorted(site.layer for site in sites if site.branch == branch) for branch in BRANCHES}
    if not any(layers.values()):
        return "none"
    if layers["attention"] == layers["mlp"]:
        return _numbered(layers["mlp"])
    names: dict[Branch, str] = {"attention": "attention of", "mlp": "MLP of"}
    return ", ".join(f"{name} {_numbered(layers[branch])}" for branch, name in names.items() if layers[branch])


def _numbered(layers: list[int]) -> str:
    """The layers in words, with runs of three or more as `1-7`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(texts)}"


@dataclass(frozen=True)
class LayerCosts:
    """Costs of each of L layers, as arrays [L]: MACs of the linear maps per token, MACs of attention per (query, key)
    pair, and bytes of the stored weights.
    """

    attn_q_o: np.ndarray
    attn_kv: np.ndarray
    pair: np.ndarray
    mlp: np.ndarray
    attn_kv_bytes: np.ndarray
    attention_bytes: np.ndarray
    mlp_bytes: np.ndarray


class Backbone:
    """Adapter over one causal language model.

    Args:
        model: A Hugging Face causal language model of a supported family.

    Raises:
        UsageError: The family is not supported or needs another attention implementation, or the model is quantized,
            has no head, or lacks a part of a layer.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config
        self.family = find_family(config.model_type, type(model).__name__)
        if not (hasattr(model, "model") and hasattr(model, "lm_head")):
            raise UsageError(
                f"A backbone is a causal language model, which has a head over its vocabulary, got "
                f"{type(model).__name__}. Load it with transformers.AutoModelForCausalLM."
            )
        # Set by transformers only; `Backbone.quantize` does not set it.
        if (quantized := getattr(model, "quantization_method", None)) is not None:
            raise UsageError(
                f"A backbone has unquantized weights, got a model quantized by "
                f"{getattr(quantized, 'value', quantized)}. Load it without a quantization_config; `run --quantize` "
                f"evaluates a plain model with quantized weights."
            )
        if config._attn_implementation not in _ATTENTION:
            raise UsageError(
                f"A backbone must run attention as one of {', '.join(_ATTENTION)}, got "
                f"{config._attn_implementation!r}. Load the model with attn_implementation='sdpa'."
            )
        if getattr(config, "attn_logit_softcapping", None) and config._attn_implementation != "eager":
            model.set_attn_implementation("eager")  # the fused kernels cannot soft-cap scores
        self.model = model
        self.config = config
        self.decoder: Any = model.model  # the families share attribute names, not a typed base
        self.layers: list[Any] = list(self.decoder.layers)
        _check_parts(self.layers, self.family)
        self.num_layers = len(self.layers)
        self.hidden_size: int = config.hidden_size
        self.step = StepArithmetic(model, self.family)
        self._scales = self.family.scales(config)
        self.rotary = RotaryTables(self.decoder)
        # The costs, with the dtypes and shapes that they were computed from.
        self._weighed: tuple[list[tuple[torch.dtype, torch.Size]], LayerCosts] | None = None
        self.quantized: Quantization = "none"
        # Number of modules in the layers when their parts were last checked; adapters change it.
        self._modules = 0
        self.windows = [self.family.window(config, layer.self_attn) for layer in self.layers]

    @property
    def eager(self) -> bool:
        """Whether attention runs unfused and therefore always needs an explicit causal mask."""
        return bool(self.config._attn_implementation == "eager")

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return int(self.config.vocab_size)

    @property
    def costs(self) -> LayerCosts:
        """The costs of each layer; a new object after the weights' dtypes or shapes changed."""
        weights = [part.weight for layer in self.layers for part in (layer.self_attn.o_proj, layer.mlp.down_proj)]
        types = [(weight.dtype, weight.shape) for weight in weights]
        if self._weighed is None or self._weighed[0] != types:
            self._weighed = types, LayerCosts(*np.array([_costs(layer) for layer in self.layers]).T)
        return self._weighed[1]

    @property
    def head_macs(self) -> int:
        """MACs of the head for one token, including adapters beside it."""
        return sum(weight.numel() for weight in self._head_weights)

    @property
    def head_bytes(self) -> int:
        """Bytes of the weights of the head and of adapters beside it."""
        return sum(weight.nbytes for weight in self._head_weights)

    @property
    def _head_weights(self) -> list[Tensor]:
        return [self.model.lm_head.weight, *_beside(self.model.lm_head)]

    @property
    def embedding_macs(self) -> int:
        """MACs per token of peft's adapters beside the embedding: rows of A are looked up and multiplied by B."""
        named = self.decoder.embed_tokens.named_parameters()
        return sum(weight.numel() for name, weight in named if name.startswith("lora_embedding_B"))

    def quantize(self, how: Quantization) -> None:
        """Quantize the weights of all layers; see `backbone.weights`. Head, embeddings and norms stay unchanged, and so
        do all costs in MACs.

        Raises:
            UsageError, EnvironmentProblem: See `check_quantizable` and `quantize_layers`.
        """
        self.check_quantizable(how)
        quantize_layers(self.decoder.layers, how)
        self.quantized, self._weighed = how, None

    def check_quantizable(self, how: Quantization) -> None:
        """Refuse to quantize a fused map of queries, keys and values, since the engine sometimes runs a part of it."""
        if how != "none" and any(_is_fused(layer) for layer in self.layers):
            raise UsageError(
                f"Weights are quantized only if queries, keys and values have separate maps, got one for all three "
                f"(qkv_proj) in {type(self.model).__name__}. Leave --quantize out, or choose another model."
            )

    def drop_stale(self) -> None:
        """Before a text, drop everything that was derived from weights which have changed since.

        Raises:
            UsageError: The decoder's number of layers changed, or a layer lacks a part.
        """
        if (modules := sum(1 for _ in self.decoder.layers.modules())) != self._modules:
            _check_parts(self.decoder.layers, self.family)
            self._modules, self._weighed = modules, None  # adapters came or went
        if any(one is not other for one, other in zip_longest(self.layers, self.decoder.layers)):
            if len(self.decoder.layers) != self.num_layers:
                raise UsageError(
                    f"A backbone keeps its number of layers, got {len(self.decoder.layers)} instead of "
                    f"{self.num_layers}. Change the model first, then call AdaptiveModel.build."
                )
            self.layers, self._weighed = list(self.decoder.layers), None

    @property
    def context_length(self) -> int:
        """Longest sequence that the backbone supports, in tokens."""
        return int(self.config.max_position_embeddings)

    def embed(self, input_ids: Tensor) -> Tensor:
        """Token ids [B, S] to hidden states [B, S, H].

        Raises:
            UsageError: The vocabulary has no such id. Raised on a CPU only; other devices would have to be waited for.
        """
        try:
            # Checked only after a failure: reading all ids beforehand would cost every call.
            states: Tensor = self.decoder.embed_tokens(input_ids)
        except IndexError:
            self.check_vocabulary(input_ids)
            raise
        return states if self._scales.embedding == 1 else states * self._scales.embedding

    def check_vocabulary(self, ids: Tensor) -> None:
        """Refuse token ids outside the vocabulary; this reads the ids from their device."""
        least, most, size = int(ids.min()), int(ids.max()), self.vocab_size
        if least < 0 or most >= size:
            raise UsageError(
                f"Token ids of this model lie in 0 .. {size - 1}, got ids from {least} to {most}. Use the model's own "
                f"tokenizer, or call model.resize_token_embeddings if tokens were added to it."
            )

    def norm_before(self, site: Site) -> Any:
        """The norm of the branch's input; `None` if the branch reads the raw residual stream."""
        branch = "mlp" if site.branch == "mlp" else "attention"  # a whole layer reads what its attention reads
        name = self.family.norm_before.get(branch)
        return None if name is None else getattr(self.layers[site.layer], name)

    def norm_after(self, site: Site) -> Any:
        """The norm of the branch's output; `None` if the family has none."""
        name = self.family.norm_after.get("attention" if site.branch == "attention" else "mlp")
        return None if name is None else getattr(self.layers[site.layer], name)

    def added(self, site: Site, output: Tensor) -> Tensor:
        """What a branch with output [..., H] adds to the residual stream, after the family's post-norm and scale."""
        norm = self.norm_after(site)
        update = output if norm is None else norm(output)
        return update if self._scales.branch == 1 else update * self._scales.branch

    def attention(self, layer: int) -> Any:
        """The attention module of a layer."""
        return self.layers[layer].self_attn

    def mlp(self, layer: int) -> Any:
        """The MLP module of a layer."""
        return self.layers[layer].mlp

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The norm before the head."""
        return self.decoder.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Normalised hidden states to logits, divided or soft-capped if the family does so."""
        return self._finished(self.model.lm_head(hidden))

    def step_head(self, hidden: Tensor) -> Tensor:
        """Final norm and head of one token per row: hidden states [B, 1, H] to logits [B, 1, V]."""
        states = self.step.norm(self.decoder.norm, hidden[:, 0])
        return self._finished(self.step.linear(self.model.lm_head, states)[:, None])

    def _finished(self, logits: Tensor) -> Tensor:
        logits = logits if self._scales.logits == 1 else logits / self._scales.logits
        cap = getattr(self.config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _check_parts(layers: Iterable[Any], family: Family) -> None:
    """Refuse a layer that lacks one of the linear maps to run and to count, or a norm that the family names."""
    # A norm is a part of the layer itself, and all that the engine does with it is to call it.
    norms = (*family.norm_before.values(), *family.norm_after.values())
    for number, layer in enumerate(layers):
        for path in (*(_FUSED_PARTS if _is_fused(layer) else _PARTS), *norms):
            module, _, name = path.partition(".")
            if not hasattr(getattr(layer, module, None), name or "forward"):
                raise UsageError(
                    f"Layers of a backbone have attention, a gated MLP and norms, but layer {number} has "
                    f"no {path}. Leave the model's own module in place, or correct the family {family.description!r}."
                )

        if _is_fused(layer) and type(layer.self_attn.qkv_proj) is not nn.Linear:
            raise UsageError(
                f"A map for queries, keys and values together is a plain linear one, got "
                f"{type(layer.self_attn.qkv_proj).__name__} in layer {number}. Merge its adapters first: "
                f"merge_and_unload() of the peft model."
            )


def _is_fused(layer: Any) -> bool:
    """Whether one map computes queries, keys and values."""
    return hasattr(getattr(layer, "self_attn", None), "qkv_proj")


def _costs(layer: Any) -> tuple[int, ...]:
    """The row of `LayerCosts` for one layer."""
    attention = layer.self_attn
    output, output_bytes = _map_costs(attention.o_proj)
    if _is_fused(layer):
        fused, width = attention.qkv_proj, query_width(attention)
        queries, kv = fused.in_features * width, fused.in_features * (fused.out_features - width)
        qkv_bytes = stored_bytes(fused)
        # By outputs, since every output has equally many weights.
        kv_bytes = qkv_bytes * (fused.out_features - width) // fused.out_features
    else:
        width = attention.q_proj.out_features
        queries, queries_bytes = _map_costs(attention.q_proj)
        kv, kv_bytes = map(sum, zip(_map_costs(attention.k_proj), _map_costs(attention.v_proj), strict=True))
        qkv_bytes = queries_bytes + kv_bytes
    # Adapters inside an MLP are linear maps like its own.
    linears = [module for module in layer.mlp.modules() if isinstance(module, nn.Linear)]
    return (
        queries + output,
        kv,
        2 * width,  # scores and weighted sum, over all query heads
        sum(module.in_features * module.out_features for module in linears),
        kv_bytes,
        qkv_bytes + output_bytes,
        sum(stored_bytes(module) for module in linears),
    )


def _map_costs(linear: Any) -> tuple[int, int]:
    """MACs per token and stored bytes of a linear map and of adapters (peft's LoRA) beside it."""
    beside = _beside(linear)
    # From the map's sizes, since a quantized weight may hold codes of another shape.
    macs = linear.in_features * linear.out_features + sum(weight.numel() for weight in beside)
    return macs, stored_bytes(linear) + sum(weight.nbytes for weight in beside)


def _beside(module: nn.Module) -> list[Tensor]:
    """Weights of the linear maps that a wrapper runs beside the wrapped map; none if it runs a copy of it instead."""
    if hasattr(module, "original_module"):
        return []
    parts = ((name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear))
    return [part.weight for name, part in parts if name and not name.startswith("base_layer")]
