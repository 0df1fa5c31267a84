"""The arithmetic of decode steps (one token per row), and rotary tables: what Hugging Face modules compute, without the
overhead of a general call.

Weights stay in their modules. Sums are taken in another order than in the modules, so results agree up to rounding but
not bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from adaptive_bench.backbone.family import Family
from adaptive_bench.backbone.products import Products, compute
from adaptive_bench.backbone.weights import is_plain, plain_parts


class Turn(NamedTuple):
    """Rotary rows of M tokens: x cos + swap(x) sin turns a head x, where swap exchanges its halves.

    Attributes:
        cos, sin: [M, 1, R]; the sign of the first half is included in `sin`. R is the head size, or less if a part of
            each head is not turned.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor) -> Turn:
        """From Hugging Face's tables, [M, 1, R] each."""
        first, second = sin.chunk(2, dim=-1)
        return cls(cos, torch.cat([-first, second], dim=-1))

    def at(self, rows: Tensor) -> Turn:
        """The given rows [N]."""
        return Turn(self.cos.index_select(0, rows), self.sin.index_select(0, rows))

    def __call__(self, heads: Tensor) -> Tensor:
        """Heads [M, n, head size], turned."""
        width = self.cos.shape[-1]
        if heads.shape[-1] > width:
            return torch.cat([self(heads[..., :width]), heads[..., width:]], dim=-1)
        return torch.addcmul(heads * self.cos, heads.roll(heads.shape[-1] // 2, -1), self.sin)


class StepArithmetic:
    """Runs one token per row through the branches of a decoder, whose layers have the attribute names of Llama's."""

    def __init__(self, model: PreTrainedModel, family: Family) -> None:
        self._config: Any = model.config
        self._family = family
        self._epsilons: Tensor | None = None

        def weights() -> Iterator[Tensor]:
            for part in model.modules():
                if isinstance(part, nn.Linear):
                    yield from plain_parts(part.weight)

        self._products = Products(weights)

    def norm(self, module: Any, states: Tensor) -> Tensor:
        """Root-mean-square norm of states [..., H]."""
        weight = module.weight
        wide = states if states.dtype == torch.float32 else states.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        epsilon = self._epsilon(states.device)
        # epsilon + length ** 2 / H: the mean square without a tensor of squares.
        normed = wide * torch.addcmul(epsilon, length, length, value=1.0 / states.shape[-1]).rsqrt_()
        if self._family.norm_adds_one:
            return (normed * (1.0 + weight.float())).type_as(states)
        # As in the modules: Gemma's norm multiplies in fp32, Llama's after rounding to the states' dtype.
        return (normed if wide is states else normed.type_as(states)) * weight

    def _epsilon(self, device: torch.device) -> Tensor:
        """The norms' epsilon as a tensor on a device."""
        if self._epsilons is None or self._epsilons.device != device:
            self._epsilons = torch.tensor(self._config.rms_norm_eps, device=device)
        return self._epsilons

    def linear(self, module: nn.Module, states: Tensor) -> Tensor:
        """A linear map of states [M, inputs]. Anything but a plain `nn.Linear` is called as a module."""
        if not _is_plain_linear(module):
            return module(states)
        weight, bias = module.weight, module.bias
        # With gradients the form is fixed, so that training does not depend on the machine.
        if not states.is_cpu or states.dtype != weight.dtype or torch.is_grad_enabled():
            return functional.linear(states, weight, bias)
        return compute(self._products.fastest(states, weight), states, weight, bias)

    def project(self, attention: Any, states: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [M, heads, head size] and K,V [M, kv heads, head size] from normalised states [M, H]."""
        if "q_norm" in attention._modules or not self._family.rotary(self._config, attention):
            return self.queries(attention, states, turn), *self.keys_and_values(attention, states, turn)
        if (fused := attention._modules.get("qkv_proj")) is None:
            queries = self.linear(attention.q_proj, states)
            keys, values = self.linear(attention.k_proj, states), self.linear(attention.v_proj, states)
        else:
            width = query_width(attention)
            queries, keys, values = self.linear(fused, states).tensor_split(
                (width, (width + fused.out_features) // 2), dim=1
            )
        heads = turn(torch.cat([queries, keys], dim=1).view(states.shape[0], -1, attention.head_dim))
        # Queries and keys are turned together, as more heads of the same token.
        split = queries.shape[1] // attention.head_dim
        queries, keys = heads.split([split, heads.shape[1] - split], dim=1)
        return queries, keys, values.reshape(keys.shape)

    def queries(self, attention: Any, states: Tensor, turn: Turn) -> Tensor:
        """Queries [M, heads, head size] from normalised states [M, H]."""
        if (fused := attention._modules.get("qkv_proj")) is None:
            queries = self.linear(attention.q_proj, states).contiguous()
        else:
            queries = _outputs(fused, states, slice(None, query_width(attention)))
        return self._heads(attention, "q_norm", queries, turn)

    def keys_and_values(self, attention: Any, states: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        """K,V [M, kv heads, head size] from normalised states [M, H]."""
        if (fused := attention._modules.get("qkv_proj")) is None:
            keys, values = self.linear(attention.k_proj, states), self.linear(attention.v_proj, states)
        else:
            # The fused outputs are queries, keys, values, in this order.
            keys, values = _outputs(fused, states, slice(query_width(attention), None)).chunk(2, dim=1)
        keys = self._heads(attention, "k_norm", keys, turn)
        return keys, values.reshape(keys.shape)

    def _heads(self, attention: Any, norm: str, states: Tensor, turn: Turn) -> Tensor:
        """Heads [M, n, head size] of projected states [M, n * head size], normalised and turned as the module does."""
        module = attention._modules.get(norm)
        if module is not None:  # normalises each head or all heads together, depending on its number of weights
            states = self.norm(module, states.view(states.shape[0], -1, module.weight.shape[0]))
        heads = states.view(states.shape[0], -1, attention.head_dim)
        return turn(heads) if self._family.rotary(self._config, attention) else heads

    def attend(self, attention: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention [M, heads * head size] of each row's token over the row's keys, without the output projection.

        Args:
            queries: [M, heads, head size].
            keys, values: [M, kv heads, T, head size].
            mask: Additive [M, 1, 1, T]; `None` if all keys are seen.
        """
        rows, heads, size = queries.shape
        # The query heads that share a key head are treated as tokens of that head.
        grouped = queries.view(rows, keys.shape[1], heads // keys.shape[1], size)
        if self._config._attn_implementation == "eager":
            scores = self._capped(grouped @ keys.transpose(2, 3) * attention.scaling)
            scores = scores if mask is None else scores + mask
            mixed = scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values
        else:
            mixed = functional.scaled_dot_product_attention(grouped, keys, values, mask, scale=attention.scaling)
        return mixed.reshape(rows, heads * mixed.shape[-1])

    def attend_many(self, attention: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """The same [R, N, heads * head size] for several tokens of each row.

        Args:
            queries: [R, heads, N, head size].
            keys, values: [R, kv heads, T, head size].
            mask: Additive [R, 1, N, T].
        """
        groups = queries.shape[1] // keys.shape[1]
        if self._config._attn_implementation == "eager":
            grouped = queries.unflatten(1, (-1, groups))
            scores = self._capped(grouped @ keys[:, :, None].transpose(3, 4) * attention.scaling) + mask[:, :, None]
            mixed = (scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values[:, :, None]).flatten(1, 2)
        else:
            if not queries.is_cpu and groups > 1:  # off the CPU, kernels with a mask need one key head per query head
                keys, values = (part.repeat_interleave(groups, dim=1) for part in (keys, values))
            mixed = functional.scaled_dot_product_attention(
                queries, keys, values, mask, scale=attention.scaling, enable_gqa=queries.shape[1] != keys.shape[1]
            )
        return mixed.transpose(1, 2).flatten(2)

    def _capped(self, scores: Tensor) -> Tensor:
        cap = getattr(self._config, "attn_logit_softcapping", None)
        return scores if cap is None else torch.tanh(scores / cap) * cap

    def mlp(self, module: Any, states: Tensor) -> Tensor:
        """Gated MLP of normalised states [M, H]."""
        if (fused := module._modules.get("gate_up_proj")) is None:
            gate, up = self.linear(module.gate_proj, states), self.linear(module.up_proj, states)
            return self.linear(module.down_proj, _gated(module.act_fn(gate), up))
        gate, up = self.linear(fused, states).chunk(2, dim=-1)
        return self.linear(module.down_proj, _gated(module.activation_fn(gate), up))


def _gated(activated: Tensor, up: Tensor) -> Tensor:
    """The product; in place without gradients, since allocating memory costs more than multiplying."""
    return activated * up if torch.is_grad_enabled() else activated.mul_(up)


def query_width(attention: Any) -> int:
    """The number of outputs of a fused `qkv_proj` that are queries; keys and values share the outputs after them."""
    return int(attention.o_proj.in_features)


def _outputs(module: nn.Linear, states: Tensor, rows: slice) -> Tensor:
    """The outputs `rows` of a linear map of states [M, inputs]."""
    return functional.linear(states, module.weight[rows], None if module.bias is None else module.bias[rows])


def _is_plain_linear(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Whether the module is a linear map without wrappers, hooks or quantized weights."""
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    return is_plain(module.weight)


_STATIC = ("default", "linear", "llama3")  # tables depend on the position alone

Tables = tuple[tuple[Tensor, Tensor], ...]  # (cos, sin) by kind


class RotaryTables:
    """The tables by which a decoder turns queries and keys.

    Args:
        decoder: A decoder whose `rotary_emb.rope_type` is one name, or one name per kind of layer.

    Attributes:
        kinds: [L] the index of the table pair that each layer uses.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        found = getattr(decoder.rotary_emb, "rope_type", None)
        self._types: dict[str | None, Any] = found if isinstance(found, dict) else {None: found}
        names = list(self._types)
        kinds = decoder.config.layer_types if len(names) > 1 else names * len(decoder.layers)
        self.kinds = [names.index(kind) for kind in kinds]
        self._known: tuple[list[Tensor], Tables] | None = None  # frequencies, and the tables computed from them

    @property
    def are_static(self) -> bool:
        """Whether rows depend only on the position."""
        return all(each in _STATIC for each in self._types.values())

    def __call__(self, hidden: Tensor, positions: Tensor) -> Tables:
        """Pairs (cos, sin) [B, S, R] for positions [B, S], in the dtype and on the device of the hidden states."""
        embed = self._decoder.rotary_emb
        return tuple(embed(hidden, positions, *([] if name is None else [name])) for name in self._types)

    def at(self, positions: Tensor, reach: int) -> Tables:
        """The same pairs from a cached table, for calls of few tokens; `reach` is larger than every position."""
        weight = self._decoder.embed_tokens.weight
        if not self.are_static:
            return self(weight, positions)
        made_of, known = self._known or ([], ())
        frequencies = self._frequencies
        if (
            # By identity: moving the model makes new frequencies, and `_known` keeps the old ones alive.
            [*map(id, made_of)] != [*map(id, frequencies)]
            or known[0][0].shape[0] < reach
            or (known[0][0].device, known[0][0].dtype) != (positions.device, weight.dtype)
        ):
            # Twice as far as needed, so that a growing text computes tables rarely.
            everything = torch.arange(max(256, 2 * reach), device=positions.device)[None]
            known = tuple((cos[0], sin[0]) for cos, sin in self(weight, everything))
            self._known = frequencies, known
        return tuple((cos[positions], sin[positions]) for cos, sin in known)

    @property
    def _frequencies(self) -> list[Tensor]:
        names = ("inv_freq" if name is None else f"{name}_inv_freq" for name in self._types)
        return [getattr(self._decoder.rotary_emb, name) for name in names]
