"""A method that does what a table says, and a reading of the semantics that shares no line with the engine.

The reference walks one sequence token by token with plain loops, so it is causal and cached by construction.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from adaptive_bench.backbone import Backbone
from adaptive_bench.method import EXECUTE_ALL, Decision, DialSpec, Method, MethodConfig
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.spec import MethodSpec


@dataclass(frozen=True)
class Pattern:
    """Who executes what, with what scales: keep, scale and input_scale [B, 2L, S] by row, site and position.

    With `unit="layer"` the attention's entry of a layer speaks for the whole layer, and inputs are not scaled.
    `instead` [2L, H, H] are maps whose output, for what the branch would have read, is what skipped tokens get.
    """

    keep: Tensor
    scale: Tensor
    input_scale: Tensor
    kv: str = "recompute"
    unit: str = "branch"
    instead: Tensor | None = None


class PatternMethod(Method):
    """Looks its decisions up. Rows are recognised by what the session carries, so they may leave the batch."""

    def __init__(self, backbone, pattern):
        super().__init__(MethodConfig(), backbone, "bench", 0)
        self.pattern = pattern
        self.unit = pattern.unit
        sites = 0 if pattern.instead is None else len(pattern.instead)
        self.instead = nn.ModuleList(nn.Linear(*pattern.instead.shape[1:], bias=False) for _ in range(sites))
        for linear, weight in zip(self.instead, pattern.instead if sites else (), strict=True):
            linear.weight.data = weight.clone()

    @property
    def dial(self):
        return DialSpec("none", 0.0, 0.0, 0.0)

    @property
    def kv_policy(self):
        return self.pattern.kv

    def decide(self, view):
        rows = view.call.session.state.setdefault("rows", torch.arange(view.call.positions.shape[0]))
        if bool(self.pattern.keep[:, view.site.number].all()) and bool((self.pattern.scale == 1).all()):
            return EXECUTE_ALL
        keep, scale, input_scale = (
            table[rows, view.site.number].gather(1, view.call.positions)
            for table in (self.pattern.keep, self.pattern.scale, self.pattern.input_scale)
        )
        otherwise = (lambda at: self.instead[view.site.number](view.normed_at(at).float())) if self.instead else None
        return Decision(keep, scale[..., None], None if self.unit == "layer" else input_scale[..., None], otherwise)


def pattern_model(backbone, pattern):
    method = PatternMethod(Backbone(backbone), pattern)
    return AdaptiveModel(backbone, method, MethodSpec("pattern")).eval()


@torch.no_grad()
def reference_logits(model, tokens, pattern, row):
    """Logits [S, V] of one sequence [S], as the definitions of skipping, scaling and the KV policies say."""
    stored: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in model.model.layers]
    return torch.cat([_one_token(model, token, at, pattern, row, stored) for at, token in enumerate(tokens)])


def _one_token(model, token, at, pattern, row, stored):
    hidden = model.model.embed_tokens(token[None, None]) * getattr(model.config, "embedding_multiplier", 1.0)
    times = getattr(model.config, "residual_multiplier", 1.0)
    for index, layer in enumerate(model.model.layers):
        # What stands in for a branch reads what it reads, or the stream at length 1 where nothing normalises that.
        seen = nn.Identity() if hasattr(layer, "input_layernorm") else nn.RMSNorm(hidden.shape[-1], 1e-6, False)
        before_attention, after_attention, before_mlp, after_mlp = _norms(layer)
        attention_site, mlp_site = 2 * index, 2 * index + (pattern.unit == "branch")
        start = hidden
        own = [layer.self_attn.layer_type] if isinstance(model.model.rotary_emb.rope_type, dict) else []
        rotary = model.model.rotary_emb(hidden, torch.tensor([[at]]), *own)
        tables = (pattern.scale, pattern.input_scale)
        scales, input_scales = ((t[row, attention_site, at], t[row, mlp_site, at]) for t in tables)
        if pattern.unit == "layer":
            scales = input_scales = (torch.tensor(1.0), torch.tensor(1.0))

        normed = before_attention(hidden) * input_scales[0]
        keep = bool(pattern.keep[row, attention_site, at])
        query, own = _project(model, layer.self_attn, normed, rotary)
        if keep or pattern.kv == "recompute" or (pattern.kv == "copy_below" and index == 0):
            stored[index][at] = own
        elif pattern.kv == "copy_below":
            stored[index][at] = stored[index - 1][at]
        if keep:
            update = _attend(model, layer.self_attn, query, stored[index], at)
            hidden = hidden + scales[0] * times * after_attention(update)
        elif pattern.instead is not None:
            hidden = hidden + input_scales[0] * seen(normed / input_scales[0]) @ pattern.instead[attention_site].T
            if pattern.unit == "layer":  # once for both branches, unscaled
                continue

        normed = before_mlp(hidden) * input_scales[1]
        if bool(pattern.keep[row, mlp_site, at]):
            update = layer.mlp(normed)
            hidden = hidden + scales[1] * times * after_mlp(update)
        elif pattern.instead is not None:
            hidden = hidden + input_scales[1] * seen(normed / input_scales[1]) @ pattern.instead[mlp_site].T
        if pattern.unit == "layer":
            hidden = start + pattern.scale[row, attention_site, at] * (hidden - start)
    logits = model.lm_head(model.model.norm(hidden))[0] / getattr(model.config, "logits_scaling", 1.0)
    cap = getattr(model.config, "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _norms(layer):
    """What normalises the input and the output of attention, and of the MLP; what leaves them alone otherwise."""
    names = ["input_layernorm", None, "post_attention_layernorm", None]
    if hasattr(layer, "post_feedforward_layernorm"):
        names[1:] = ["post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
    return [getattr(layer, name or "", nn.Identity()) for name in names]


def _project(model, attention, normed, rotary):
    def heads(projected, norm):
        if not hasattr(attention, norm):
            return projected.view(-1, attention.head_dim)
        width = getattr(attention, norm).weight.shape[0]  # of one head, or of all together
        return getattr(attention, norm)(projected.view(-1, width)).view(-1, attention.head_dim)

    def turn(states):
        half = rotary[0].shape[-1] // 2
        states, rest = states[:, : 2 * half], states[:, 2 * half :]
        if not getattr(attention, "use_rope", True):
            return torch.cat([states, rest], dim=-1)
        rotated = torch.cat([-states[:, half:], states[:, :half]], dim=-1)
        return torch.cat([states * rotary[0][0] + rotated * rotary[1][0], rest], dim=-1)

    if hasattr(attention, "qkv_proj"):
        sizes = (model.config.num_attention_heads, *[model.config.num_key_value_heads] * 2)
        query, key, value = attention.qkv_proj(normed).split([size * attention.head_dim for size in sizes], dim=-1)
    else:
        query, key, value = attention.q_proj(normed), attention.k_proj(normed), attention.v_proj(normed)
    own = turn(heads(key, "k_norm")), value.view(-1, attention.head_dim)
    return turn(heads(query, "q_norm")), own


def _attend(model, attention, query, stored, at):
    window = getattr(attention, "sliding_window", None)
    if model.config.model_type in ("mistral", "phi3"):
        window = model.config.sliding_window
    visible = [pair for position, pair in sorted(stored.items()) if window is None or position > at - window]
    groups = attention.num_key_value_groups
    keys = torch.stack([key for key, _ in visible]).repeat_interleave(groups, dim=1)  # [T, heads, head size]
    values = torch.stack([value for _, value in visible]).repeat_interleave(groups, dim=1)
    scores = torch.einsum("hd,thd->ht", query, keys) * attention.scaling
    if getattr(attention, "attn_logit_softcapping", None):
        scores = attention.attn_logit_softcapping * torch.tanh(scores / attention.attn_logit_softcapping)
    mixed = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)
    return attention.o_proj(mixed.reshape(1, 1, -1))


@pytest.fixture(scope="session")
def make_pattern():
    """`make_pattern(batch, length, layers, kv=, unit=, seed=, share=, scaled=, instead=)`: a random table; `instead` is
    the width of the states, where skipped tokens are to get something.
    """

    def make(batch, length, layers, *, kv="recompute", unit="branch", seed=0, share=0.6, scaled=True, instead=0):
        generator = torch.Generator().manual_seed(seed)
        keep = torch.rand(batch, 2 * layers, length, generator=generator) < share
        scales = 0.5 + torch.rand(2, *keep.shape, generator=generator) if scaled else torch.ones(2, *keep.shape)
        maps = torch.randn(2 * layers, instead, instead, generator=generator) / instead**0.5 if instead else None
        return Pattern(keep, *scales, kv=kv, unit=unit, instead=maps)

    return make


@pytest.fixture(scope="session")
def run_pattern():
    """`run_pattern(backbone, pattern)`: an adaptive model that follows the pattern."""
    return pattern_model


@pytest.fixture(scope="session")
def reference():
    """`reference(backbone, tokens [S], pattern, row)`: logits [S, V]."""
    return reference_logits
