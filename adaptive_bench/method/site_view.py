"""`SiteView`: what a method sees when it decides at one site."""

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
        scores: [B, S] the scores that the method compared with thresholds here, for listeners; `None` without any.
    """

    site: Site
    hidden: Tensor
    call: ForwardCall
    scores: Tensor | None = None

    @cached_property
    def normed(self) -> Tensor:
        """[B, S, H] the input of the branch: the residual stream after the pre-norm.

        In a family without a pre-norm it is `levelled`, since the branch reads the raw stream, which suits no router.
        """
        return self.call.normalise(self.site, self.hidden)

    @property
    def read(self) -> Tensor:
        """[B, S, H] what the branch really reads, for executors: the raw stream in a family without a pre-norm."""
        return self.normed if self._has_norm else self._stream

    def read_at(self, tokens: Tensor) -> Tensor:
        """[N, H] what the branch really reads, for the tokens at flat indices [N] alone."""
        return self.normed_at(tokens) if self._has_norm else self._stream.flatten(0, 1).index_select(0, tokens)

    def scale_input(self, scale: Tensor) -> None:
        """Multiply the input of the branch by factors [B, S, 1 or H]."""
        # Overwrites the cached property, so that whoever reads the input from now on gets it scaled.
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
        """[B, S, H] the residual stream with every token divided by its root mean square, in fp32 and without weights.

        For routers and gates whose paper feeds them the raw stream. At the first token of a real Llama the stream's
        norm reaches 20,000, where even a router with small initial weights would start with logits in the hundreds.
        """
        return levelled(self.hidden)

    def normed_at(self, tokens: Tensor) -> Tensor:
        """[N, H] the pre-normed states of the tokens at flat indices [N] alone."""
        # Already computed for all tokens (or scaled): take rows of it. Otherwise only these tokens are normalised.
        if "normed" in self.__dict__:
            return self.normed.flatten(0, 1).index_select(0, tokens)
        return self.call.normalise(self.site, self.hidden.flatten(0, 1).index_select(0, tokens))

    def record(self, **values: Tensor) -> None:
        """Record tensors for the method's losses: one list per name, in the order of sites."""
        for name, value in values.items():
            self.call.records.setdefault(name, []).append(value)

    def probe(self, tokens: Tensor, among: Tensor | None = None) -> Tensor:
        """Logits [N, V] of the model if the tokens at flat indices [N] left the stack here. Booked as a decision.

        Args:
            among: Boolean [B, S], the tokens that have to be decided. With fixed shapes (`ForwardCall.fixed_shapes`)
                all tokens are computed, and the cost of the other tokens is booked as waste.
        """
        self.call.book_measure(self.site.layer, "probe", tokens, among)
        backbone = self.call.backbone
        return backbone.head(backbone.final_norm(self.hidden.flatten(0, 1)[tokens]))

    def cosine(self, previous: Tensor, tokens: Tensor, among: Tensor | None = None) -> Tensor:
        """Cosines [N] of the states with those of an earlier site [B, S, H], for the tokens at flat indices [N].

        Booked as a decision: two norms and a product, 3 H multiply-accumulates per token. `among` as in `probe`.
        """
        self.call.book_measure(self.site.layer, "cosine", tokens, among)
        now, before = (states.flatten(0, 1)[tokens].float() for states in (self.hidden, previous))
        return functional.cosine_similarity(now, before, dim=-1)

    def change(self, previous: Tensor, tokens: Tensor) -> Tensor:
        """Norms [N] of the change of the states since an earlier site [B, S, H], for the tokens at flat indices [N].

        Booked as a decision: H multiply-accumulates per token.
        """
        self.call.book_measure(self.site.layer, "norm", tokens)
        now, before = (states.flatten(0, 1)[tokens].float() for states in (self.hidden, previous))
        return functional.pairwise_distance(now, before, eps=0.0)  # `adaptive-bench check` counts this function

    def apply(
        self, network: nn.Module, tokens: Tensor, among: Tensor | None = None, *, final_norm: bool = False
    ) -> Tensor:
        """Outputs [N, O] of one of the method's maps for the residual stream of the tokens at flat indices [N].

        The cost is booked for these tokens, whichever requests their rows belong to.

        Args:
            network: A linear map, or several with layers between them; each runs once.
            among: As in `probe`.
            final_norm: The map reads the states after the backbone's final norm.
        """
        states = self.hidden.flatten(0, 1)[tokens]
        states = self.call.backbone.final_norm(states) if final_norm else states
        return self.call.run_map(self.site.layer, network, states.float(), tokens, among)

    def rescaled(self, scale: Tensor, tokens: Tensor) -> Tensor:
        """[N, H] the update (scale - 1) h, which multiplies the residual stream h of the tokens at flat indices [N] by
        `scale`.

        For `Decision.otherwise`, which books H multiply-accumulates per token.

        Args:
            scale: A number, on the CPU or on the model's device.
        """
        self.call.note_rescale(tokens.numel())
        states = self.hidden.flatten(0, 1).index_select(0, tokens).float()
        return torch.multiply(states, scale - 1.0)  # `adaptive-bench check` counts this function

    def answer(self, tokens: Tensor, logits: Tensor) -> None:
        """Use the probe's logits [N, V] as final for the tokens at flat indices [N]: they are not computed again."""
        self.call.answers.append((tokens, logits))
