"""What one forward call knows: which tokens are real, where they stand, what is cached, who counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

from adaptive_bench.engine.attention_mask import additive, visible_keys
from adaptive_bench.engine.kv_cache import AdaptiveCache, KVPolicy, Session, hash_terms
from adaptive_bench.engine.ledger import Ledger, Phase

if TYPE_CHECKING:
    from adaptive_bench.engine.loop import DecisionMeter
    from adaptive_bench.model.backbone import Backbone, Site

_PROMPT_LENGTH = "prompt_length"


@dataclass
class ForwardCall:
    """One forward call of B rows and S tokens.

    Attributes:
        valid: [B, S] real tokens (padding is False).
        positions: [B, S] position in the sequence, 0 for padding.
        continuation: [B, S] tokens after the prompt.
        rotary: Tables (cos, sin) [B, S, head size].
        cache: K,V of earlier calls; `None` where nothing has to be merged or kept.
        session: What the requests carry from call to call.
        phase: `decode` if the cache held tokens before this call, else `prefill`.
        ledger: Books the work; `None` while training.
        meter: Counts the MACs of the method's own linear maps.
        eligible: Token-branches this call counts as eligible per branch, where that is not its real tokens.
        labels: [B, S] of a training call, else `None`.
        layer_states: Residual stream after each layer, for methods whose losses need it; else `None`.
        records: What a method noted for its losses, by name.
        answers: Flat token indices [N] and their final logits [N, V] where a probe already gave them.
        scratch: What a method carries from layer to layer within this call.
    """

    backbone: Backbone
    input_ids: Tensor
    valid: Tensor
    positions: Tensor
    continuation: Tensor
    rotary: tuple[Tensor, Tensor]
    cache: AdaptiveCache | None
    session: Session
    kv_policy: KVPolicy
    packed: bool
    training: bool
    phase: Phase
    ledger: Ledger | None
    meter: DecisionMeter
    eligible: int | None = None
    labels: Tensor | None = None
    layer_states: list[Tensor] | None = None
    records: dict[str, list[Tensor]] = field(default_factory=dict)
    answers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    scratch: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def all_valid(self) -> bool:
        """No padding in this call."""
        return bool(self.valid.all())

    @cached_property
    def num_valid(self) -> int:
        """Real tokens in this call."""
        return int(self.valid.sum())

    @property
    def num_eligible(self) -> int:
        """Tokens that could execute each branch of this call."""
        return self.num_valid if self.eligible is None else self.eligible

    @cached_property
    def prefix_hash(self) -> Tensor:
        """[B, S] 64-bit hash of each token's prefix, itself included: equal texts hash alike."""
        terms = hash_terms(self.input_ids, self.positions) * self.valid
        return self.session.hash_sum[:, None] + terms.cumsum(1)

    @cached_property
    def continuation_step(self) -> Tensor:
        """[B, S] how many tokens after the prompt's end a token stands; below 1 inside the prompt."""
        return self.positions - self._prompt_length[:, None] + 1

    @cached_property
    def _prompt_length(self) -> Tensor:
        """[B] tokens of the prompt, which is what the session's first call says."""
        known = self.session.state.get(_PROMPT_LENGTH)
        return (self.valid & ~self.continuation).sum(dim=1) if known is None else known

    def end(self) -> None:
        """Note in the session what later calls need to know of this one, whether or not the method asked for it now:
        the dial may change between calls.
        """
        if self.cache is not None and self.valid.numel():
            self.session.hash_sum = self.prefix_hash[:, -1]
            self.session.state[_PROMPT_LENGTH] = self._prompt_length
        self.session.lengths = self.session.lengths + self.valid.sum(dim=1)

    def cross_entropy(self, hidden: Tensor) -> Tensor:
        """Mean cross entropy of the labels if the residual stream [B, S, H] ended here."""
        assert self.labels is not None
        targets = self.labels[:, 1:]
        chosen = targets != -100
        logits = self.backbone.head(self.backbone.final_norm(hidden[:, :-1][chosen]))
        return functional.cross_entropy(logits.float(), targets[chosen])

    def visible_counts(self, layer: int) -> Tensor:
        """[B, S] keys each token would see in the dense model."""
        window = self.backbone.windows[layer]
        counts = self.positions + 1
        return counts if window is None else counts.clamp(max=window)

    def repairs_kv(self, layer: int) -> bool:
        """Whether K,V of skipped tokens are projected at this layer."""
        return self.kv_policy == "recompute" or (self.kv_policy == "copy_below" and layer == 0)

    @cached_property
    def pads_right_only(self) -> bool:
        """Real tokens come first in every row: causality alone hides the padding from them."""
        return self.all_valid or bool((self.valid[:, :-1] >= self.valid[:, 1:]).all())

    def mask(self, layer: int, queries: Tensor, keys: Tensor) -> Tensor:
        """Additive mask [R, 1, N, T] for query positions [R, N] and key positions [R, T]."""
        return additive(visible_keys(queries, keys, self.backbone.windows[layer]), self.rotary[0].dtype)

    def dense_mask(self, layer: int, keys: Tensor) -> Tensor | None:
        """Mask when all S tokens query keys at positions [B, T]; `None` where the fused kernel needs none."""
        window, length, reach = self.backbone.windows[layer], self.valid.shape[1], keys.shape[1]
        sparse = self.kv_policy in ("evict", "defer")  # few keys may still lie far apart
        if not self.backbone.eager and (window is None or (reach < window and not sparse)):
            if reach == length and self.pads_right_only:
                return None
            if length == 1 and self.all_valid and bool((keys >= 0).all()):
                return None
        return self.mask(layer, self.positions, keys)


@dataclass
class SiteView:
    """What a method sees when it decides.

    Attributes:
        site: Layer and branch.
        hidden: [B, S, H] residual stream.
        call: The forward call (valid tokens, positions, session ...).
    """

    site: Site
    hidden: Tensor
    call: ForwardCall

    @cached_property
    def normed(self) -> Tensor:
        """[B, S, H] what the branch reads: the residual stream after the pre-norm."""
        return self.call.backbone.pre_norm(self.site, self.hidden)

    def normed_at(self, tokens: Tensor) -> Tensor:
        """[N, H] pre-normed states of the tokens at flat indices [N]; computes no more than needed."""
        if "normed" in self.__dict__:
            return self.normed.flatten(0, 1)[tokens]
        return self.call.backbone.pre_norm(self.site, self.hidden.flatten(0, 1)[tokens])

    def record(self, **values: Tensor) -> None:
        """Note tensors for the method's losses; one list per name, in site order."""
        for name, value in values.items():
            self.call.records.setdefault(name, []).append(value)

    def probe(self, tokens: Tensor) -> Tensor:
        """Logits [N, V] the model would give if the tokens at flat indices [N] ended here. Booked as a decision."""
        backbone = self.call.backbone
        if self.call.ledger is not None:
            macs = tokens.numel() * backbone.head_macs
            self.call.ledger.book(self.call.phase, self.site.layer, "overhead.decision", macs)
        return backbone.head(backbone.final_norm(self.hidden.flatten(0, 1)[tokens]))

    def answer(self, tokens: Tensor, logits: Tensor) -> None:
        """The probe's logits [N, V] are final for the tokens at flat indices [N]: they are not computed again."""
        self.call.answers.append((tokens, logits))
