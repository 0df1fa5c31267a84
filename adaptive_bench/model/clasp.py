r"""CLaSp: before each draft, choose the layers it leaves out from the last token of the text so far.

Of the ways to leave out j of the first i layers it looks for the state most like the full model's $h_i$, by a dynamic
programme over that one token:

    D(i, j) = max(cos(h_i, g(i-1, j-1)), cos(h_i, f_i(g(i-1, j))))

where $f_i$ is layer i and g(i, j) the better of the two states: layer i left out, or run. The set of D(L, M) drafts the
next tokens. A layer runs once for all j, as if they were tokens side by side that do not see each other.

Source: CLaSp, arXiv 2505.24196. Deviations: rows of a batch have a set each; it is chosen anew in every round, where
the paper also keeps one for several; the state of j = 0 is computed again, which is $h_i$.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from adaptive_bench.backbone import Backbone, Site
from adaptive_bench.engine.attention_mask import additive, visible_keys
from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.engine.ledger import Ledger, cosine_macs
from adaptive_bench.method import (
    EXECUTE_ALL,
    Decision,
    DialSpec,
    ForwardCall,
    KVPolicy,
    Method,
    MethodConfig,
    MethodSpec,
)
from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.forward import ForwardModel


class LayerSets(Method):
    """Every row of a batch leaves out a set of layers of its own. Not registered: it is told which.

    Attributes:
        skipped: Boolean [B, L], on the host; read where the dial is not 0.
    """

    skips_whole_layers = True
    unit = "layer"
    spares = False

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(MethodConfig(), backbone, "bench", 0)
        self.skipped = torch.zeros(0, backbone.num_layers, dtype=torch.bool)

    @property
    def dial(self) -> DialSpec:
        """Layers left out."""
        return DialSpec("skipped_layers", 0, self.backbone_size[0], 0)

    @property
    def kv_policy(self) -> KVPolicy:
        """A layer that is left out stores nothing; verifying stores all of it."""
        return "evict"

    def dial_for(self, saved_tokens: float) -> float:
        """The nearest number of layers."""
        return round(saved_tokens * self.backbone_size[0])

    def decide_ahead(self, call: ForwardCall) -> Sequence[Decision]:
        """Which rows execute each layer."""
        if not self.value:
            return [EXECUTE_ALL] * self.backbone_size[0]
        return [_decision(column, call.valid) for column in self.skipped.T]


def _decision(skipped: Tensor, valid: Tensor) -> Decision:
    if not skipped.any():
        return EXECUTE_ALL
    if skipped.all():
        return Decision.skip_all(valid)
    return Decision(keep=(~skipped).to(valid.device)[:, None].expand_as(valid))


def clasp_model(backbone_model: PreTrainedModel) -> AdaptiveModel:
    """A model that drafts with the layers `Clasp` chooses, in `eval()` mode; its full model is the plain one."""
    return AdaptiveModel(backbone_model, LayerSets(Backbone(backbone_model)), MethodSpec("clasp")).eval()


class Clasp:
    """Chooses before each round which layers the draft leaves out (a `Chooser`).

    Args:
        skipped: How many, M.
    """

    def __init__(self, skipped: int) -> None:
        self.count = skipped

    def choose(self, model: ForwardModel, cache: AdaptiveCache, tokens: Tensor) -> None:
        """See `Chooser`."""
        assert isinstance(model.method, LayerSets), "the model of clasp_model()"
        model.method.skipped = best_layer_sets(model.backbone, cache, tokens, self.count, model.ledger)


@torch.no_grad()
def best_layer_sets(
    backbone: Backbone, cache: AdaptiveCache, tokens: Tensor, skipped: int, ledger: Ledger | None = None
) -> Tensor:
    """The layers to leave out, boolean [B, L] with M in each row, on the host.

    Args:
        cache: Of the full model; it stays as it is.
        tokens: [B] the last token that each row of it holds.
        skipped: M, 0 .. L.
        ledger: Gets what is executed, as `overhead.decision`.
    """
    places = cache.session.lengths[:, None] - 1
    states = backbone.embed(tokens[:, None])
    left_out: list[Tensor] = []  # of each layer, boolean [B, J]: whether g(i, j) comes from leaving it out
    for layer in range(backbone.num_layers):
        executed = _run_layer(backbone, cache, layer, states, places, ledger)
        full = executed[:, :1]
        states, shortcut = _better(full, executed, states, min(states.shape[1], skipped) + 1)
        left_out.append(shortcut.cpu())
        if ledger is not None:
            compared = 2 * shortcut.numel() * cosine_macs(backbone.hidden_size)
            ledger.book("decode", layer, "overhead.decision", compared)
    rows = torch.arange(len(tokens))
    remaining = torch.full((len(tokens),), skipped)
    sets = torch.zeros(len(tokens), backbone.num_layers, dtype=torch.bool)
    for layer in reversed(range(backbone.num_layers)):
        sets[:, layer] = left_out[layer][rows, remaining]
        remaining = remaining - sets[:, layer].long()
    return sets


def _better(full: Tensor, executed: Tensor, before: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """States g(i, j) [B, width, H] for j = 0, 1, ..., and where they come from leaving layer i out [B, width].

    Args:
        full: [B, 1, H] h_i.
        executed, before: [B, J, H] after and before the layer, for j = 0 .. J - 1.
    """
    batch, known = executed.shape[:2]
    scores = full.new_full((2, batch, width), -torch.inf, dtype=torch.float32)  # run, left out
    scores[0, :, :known] = cosine_similarity(full.float(), executed.float(), dim=-1)[:, :width]
    scores[1, :, 1:] = cosine_similarity(full.float(), before.float(), dim=-1)[:, : width - 1]
    shortcut = scores[1] > scores[0]
    run, skipped = (states.new_zeros(batch, width, states.shape[-1]) for states in (executed, before))
    run[:, :known], skipped[:, 1:] = executed[:, :width], before[:, : width - 1]
    return torch.where(shortcut[..., None], skipped, run), shortcut


class _OneToken:
    """A cache for a layer that runs J candidates of one token a row: they see what is stored, and nothing is."""

    def __init__(self, cache: AdaptiveCache) -> None:
        self._cache = cache

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """K,V [B, kv heads, T + J, head size] to attend to."""
        stored = self._cache.store(layer).view()
        return tuple(
            torch.cat([old.to(new.dtype), new], dim=2) for old, new in zip(stored, (keys, values), strict=True)
        )  # type: ignore[return-value]


def _run_layer(
    backbone: Backbone, cache: AdaptiveCache, layer: int, states: Tensor, places: Tensor, ledger: Ledger | None
) -> Tensor:
    """States [B, J, H] after a layer, of J candidates for the one token at places [B, 1], which is cached already."""
    batch, count = states.shape[:2]
    keys = cache.store(layer).table.visible()
    earlier = visible_keys(places, keys.masked_fill(keys >= places, -1), backbone.windows[layer])
    itself = torch.eye(count, dtype=torch.bool, device=states.device).expand(batch, -1, -1)
    mask = additive(torch.cat([earlier.expand(-1, count, -1), itself], dim=2), states.dtype)
    rotary = tuple(
        table.expand(-1, count, -1) for table in backbone.rotary(states, places)[backbone.rotary.kinds[layer]]
    )
    attention, mlp = Site(layer, "attention"), Site(layer, "mlp")
    update, _ = backbone.attention(layer)(
        _before(backbone, attention, states),
        position_embeddings=rotary,
        attention_mask=mask,
        past_key_values=_OneToken(cache),
    )
    states = states + backbone.added(attention, update)
    states = states + backbone.added(mlp, backbone.mlp(layer)(_before(backbone, mlp, states)))
    if ledger is not None:
        costs = backbone.costs
        linear = costs.attn_q_o[layer] + costs.attn_kv[layer] + costs.mlp[layer]
        pairs = (keys.shape[1] + count) * costs.pair[layer]
        ledger.book("decode", layer, "overhead.decision", float(batch * count * (linear + pairs)))
        ledger.read_weights("decode", float(costs.attention_bytes[layer] + costs.mlp_bytes[layer]))
    return states


def _before(backbone: Backbone, site: Site, states: Tensor) -> Tensor:
    norm = backbone.norm_before(site)
    return states if norm is None else norm(states)
