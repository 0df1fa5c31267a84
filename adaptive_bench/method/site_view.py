"""`SiteView`: what a method sees when it decides at one site, and what a router reads of a whole prompt.

A decision per prompt is made once from the pooled states of the prompt, and holds for every generated token. The prompt
itself executes everything, so the decision depends on earlier text alone (class C0) and on no other row. It is kept in
the session, where later calls, reordered rows and drafts find it. When a text is scored, its context is the
prompt; the scored tokens do not enter the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from adaptive_bench.backbone import Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method.call import ForwardCall, last_true, levelled
from adaptive_bench.method.session import Session


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


def prompt_outputs(view: SiteView, network: nn.Module, *, windows: int = 1, states: Tensor | None = None) -> Tensor:
    """[B, O] the output of a network for each row's prompt at this site: the mean of its outputs for the prompt's
    windows.

    The first W floor(T / W) of a prompt's T tokens are cut into W windows of equal length (W = T for shorter prompts),
    and the states are averaged over each window. The network runs once per window and prompt, and its cost is booked
    for the prompt's last token. Call this at every site of every call, whatever the dial, because the dial may change
    after the prompt was read.

    Args:
        network: One of the method's maps, [N, H] to [N, O].
        windows: The number of windows W.
        states: [B, S, H], by default the raw residual stream. On real models its mean is dominated by the first token,
            whose norm is a hundred times that of the others; `view.levelled` avoids this.
    """
    call, name = view.call, f"prompt_{view.site.number}"
    known = call.session.state.get(name)
    if known is not None:
        # The means would need the states of the earlier part, which are gone.
        if call.reads_prompt:
            raise UsageError(
                "A decision per prompt needs the whole prompt in one call, got more tokens of a prompt in a later "
                "call. Give whole prompts, and mark the tokens that follow them in continuation_mask."
            )
        return known
    belongs = window_numbers(call.context, windows)
    pooled, filled = window_means(view.hidden if states is None else states, belongs, windows)
    # Training runs empty windows too: it books no work, and finding the empty ones would wait for the device.
    whole = windows == 1 or call.training
    places = torch.arange(filled.numel(), device=filled.device) if whole else filled.flatten().nonzero()[:, 0]
    rows, columns = places // windows, places % windows
    tokens = rows * call.context.shape[1] + last_true(call.context)[rows]  # the prompt's last token, for the books
    said = call.run_map(view.site.layer, network, pooled[rows, columns].float(), tokens)
    everywhere = said.new_zeros(*filled.shape, said.shape[-1]).index_put((rows, columns), said)
    # [B, W, O] to [B, O], over the windows that hold a token.
    outputs = (everywhere * filled[..., None]).sum(dim=1) / filled.sum(dim=1, keepdim=True).clamp(min=1)
    call.session.state[name] = outputs.detach()  # later calls must not keep this call's graph alive
    return outputs


def known_outputs(session: Session, site: Site) -> Tensor:
    """The result [B, O] of `prompt_outputs` at a site in an earlier call of a session."""
    return session.state[f"prompt_{site.number}"]


def window_numbers(context: Tensor, windows: int) -> Tensor:
    """[B, S] the window 0 .. W - 1 of each token of the prompts [B, S] (boolean); -1 for tokens in no window."""
    lengths = context.sum(dim=1, keepdim=True)
    count = lengths.clamp(min=1, max=windows)
    size = (lengths // count).clamp(min=1)
    place = context.cumsum(dim=1) - 1
    return torch.where(context & (place < count * size), place // size, -1)


def window_means(states: Tensor, belongs: Tensor, windows: int) -> tuple[Tensor, Tensor]:
    """Means [B, W, H] of states [B, S, H] over windows [B, S], and which windows [B, W] hold any token.

    Sums are in double precision, so that padding, which changes the order of summation, changes no decision.
    """
    inside = [belongs == window for window in range(windows)]
    sizes = torch.stack([mask.sum(dim=1) for mask in inside], dim=1)
    sums = [states.masked_fill(~mask[..., None], 0.0).sum(dim=1, dtype=torch.float64) for mask in inside]
    return torch.stack(sums, dim=1) / sizes.clamp(min=1)[..., None], sizes > 0
