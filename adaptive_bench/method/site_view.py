"""What a method sees when it decides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.method.call import ForwardCall, levelled


@dataclass
class SiteView:
    """One site of one forward call.

    Attributes:
        site: Layer and branch.
        hidden: [B, S, H] residual stream.
        call: The forward call (valid tokens, positions, session ...).
        scores: [B, S] what the method compared with thresholds here, for those who listen; `None` where it did not.
    """

    site: Site
    hidden: Tensor
    call: ForwardCall
    scores: Tensor | None = None

    @cached_property
    def normed(self) -> Tensor:
        """[B, S, H] what the branch reads: the residual stream after the pre-norm.

        Where the family has none, `levelled`: the branch then reads the stream as it is, which is not for routers.
        """
        return self.call.normalise(self.site, self.hidden)

    @property
    def read(self) -> Tensor:
        """[B, S, H] what the branch reads, for executors."""
        return self.normed if self._has_norm else self._stream

    def read_at(self, tokens: Tensor) -> Tensor:
        """[N, H] what the branch reads of the tokens at flat indices [N]; computes no more than needed."""
        return self.normed_at(tokens) if self._has_norm else self._stream.flatten(0, 1).index_select(0, tokens)

    def scale_input(self, scale: Tensor) -> None:
        """Multiply what the branch reads by factors [B, S, 1 or H]."""
        self.normed = self.normed * scale.to(self.normed.dtype)
        if not self._has_norm:
            self._stream = self.hidden * scale.to(self.hidden.dtype)

    @property
    def _has_norm(self) -> bool:
        return self.call.backbone.norm_before(self.site) is not None

    @cached_property
    def _stream(self) -> Tensor:
        return self.hidden

    @cached_property
    def levelled(self) -> Tensor:
        """[B, S, H] the residual stream, every token divided by its root mean square: fp32, without weights.

        For routers and gates whose paper feeds them the stream as it is. Its norm at the first token of a real Llama
        reaches 20,000, and a router that starts small starts with logits in the hundreds there.
        """
        return levelled(self.hidden)

    def normed_at(self, tokens: Tensor) -> Tensor:
        """[N, H] pre-normed states of the tokens at flat indices [N]; computes no more than needed."""
        if "normed" in self.__dict__:
            return self.normed.flatten(0, 1).index_select(0, tokens)
        return self.call.normalise(self.site, self.hidden.flatten(0, 1).index_select(0, tokens))

    def record(self, **values: Tensor) -> None:
        """Note tensors for the method's losses; one list per name, in site order."""
        for name, value in values.items():
            self.call.records.setdefault(name, []).append(value)

    def probe(self, tokens: Tensor, among: Tensor | None = None) -> Tensor:
        """Logits [N, V] the model would give if the tokens at flat indices [N] ended here. Booked as a decision.

        Args:
            among: Boolean [B, S], the tokens that have to be decided: with fixed shapes (`ForwardCall.fixed_shapes`)
                all are asked, and the others' share is waste.
        """
        self.call.book_probe(self.site.layer, tokens, among)
        backbone = self.call.backbone
        return backbone.head(backbone.final_norm(self.hidden.flatten(0, 1)[tokens]))

    def cosine(self, previous: Tensor, tokens: Tensor, among: Tensor | None = None) -> Tensor:
        """Cosines [N] of the states with those of another site [B, S, H], for the tokens at flat indices [N].

        Booked as a decision: two norms and a product, 3 H multiply-accumulates a token. `among` as in `probe`.
        """
        self.call.book_cosine(self.site.layer, tokens, among)
        now, before = (states.flatten(0, 1)[tokens].float() for states in (self.hidden, previous))
        return functional.cosine_similarity(now, before, dim=-1)

    def change(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """Norms [N] of what was added to the states since another site [B, S, H], for the tokens at flat indices [N].

        Booked as a decision: H multiply-accumulates a token.
        """
        self.call.book_norm(self.site.layer, tokens)
        now, before = (states.flatten(0, 1)[tokens].float() for states in (self.hidden, previous))
        return functional.pairwise_distance(now, before, eps=0.0)  # `adaptive-bench check` counts it by this name

    def apply(
        self, network: nn.Module, tokens: Tensor, among: Tensor | None = None, *, final_norm: bool = False
    ) -> Tensor:
        """Outputs [N, O] of one of the method's maps for the residual stream of the tokens at flat indices [N].

        Booked for these tokens, whatever requests are behind their rows.

        Args:
            network: A linear map, or several with what lies between them, each run once.
            among: As in `probe`.
            final_norm: It reads the states after the backbone's final norm.
        """
        states = self.hidden.flatten(0, 1)[tokens]
        states = self.call.backbone.final_norm(states) if final_norm else states
        return self.call.run_map(self.site.layer, network, states.float(), tokens, among)

    def rescaled(self, scale: Tensor, tokens: Tensor) -> Tensor:
        """[N, H] what makes the residual stream of the tokens at flat indices [N] so many times itself.

        For `Decision.otherwise`, where it is booked: H multiply-accumulates a token.

        Args:
            scale: A number, on the CPU or where the model is.
        """
        self.call.note_rescale(tokens.numel())
        states = self.hidden.flatten(0, 1).index_select(0, tokens).float()
        return torch.multiply(states, scale - 1.0)  # by this name `adaptive-bench check` counts it

    def answer(self, tokens: Tensor, logits: Tensor) -> None:
        """The probe's logits [N, V] are final for the tokens at flat indices [N]: they are not computed again."""
        self.call.answers.append((tokens, logits))
