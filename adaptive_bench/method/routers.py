"""Shared parts of routers: a choice between executing and skipping that is sampled in training, and decisions per
prompt.

The choice is hard in the forward pass and has the gradient of a soft choice ("Categorical Reparameterization with
Gumbel-Softmax", https://arxiv.org/abs/1611.01144).

A decision per prompt is made once from the pooled states of the prompt, and holds for every generated token. The prompt
itself executes everything, so the decision depends on earlier text alone (class C0) and on no other row. It is kept in
the session, where later calls, reordered rows and drafts find it. When a text is scored, its context is the
prompt; the scored tokens do not enter the decision.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from adaptive_bench.backbone import Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method.base import Method
from adaptive_bench.method.call import last_true
from adaptive_bench.method.decisions import EXECUTE_ALL, Decision
from adaptive_bench.method.dial import DialSpec
from adaptive_bench.method.session import Session, draw_key, uniform_from
from adaptive_bench.method.site_view import SiteView


class LogitRouter(Method):
    """Base class of methods whose routers give two logits, for executing and for skipping.

    Training samples a hard choice that has the gradient of a soft one. Inference takes the larger logit; the dial is an
    offset on the execute logit.

    Attributes:
        execute: Index of the execute logit.
    """

    execute: ClassVar[int] = 0
    solves_dial = True

    @property
    def dial(self) -> DialSpec:
        """Offset on the execute logit; at its largest value everything executes, whatever the logits."""
        # 50 is meant to exceed any difference of two logits, so that at the other end nobody executes.
        return DialSpec("execute_offset", -50.0, 50.0, 50.0)

    def route(self, view: SiteView, logits: Tensor, *, temperature: float, place: int) -> Decision:
        """The decision from logits [B, S, 2]; see `sampled_choice` for the other arguments."""
        if not view.call.training:
            return EXECUTE_ALL if self.value == self.dial.skip_nothing else Decision(keep=self.runs(logits))
        executed = sampled_choice(self, view, logits, chosen=self.execute, temperature=temperature, place=place)
        view.record(executed=executed)
        # A scale instead of a mask: the gradient of skipping tokens needs their branch's output too.
        return Decision(scale=executed[..., None])

    def runs(self, logits: Tensor) -> Tensor:
        """Boolean [...]: whether executing wins at the current dial, from logits [..., 2]."""
        return logits[..., self.execute] + self.value >= logits[..., 1 - self.execute]


def sampled_choice(
    method: Method,
    view: SiteView,
    logits: Tensor,
    *,
    chosen: int,
    temperature: float,
    place: int,
    counters: Tensor | None = None,
) -> Tensor:
    """Whether side `chosen` of the logits [B, S, 2] wins after noise is added: exactly 0 or 1, [B, S].

    Args:
        temperature: Temperature of the soft choice that gives the gradient.
        place: Number of the router that chooses, unique within the call.
        counters: Counters for the noise, one per choice; by default those of the tokens.
    """
    counters = view.call.draw_counters if counters is None else counters
    soft = ((logits + _noise(method, counters, place)) / temperature).softmax(dim=-1)[..., chosen]
    # Straight-through: the second term is 0 and brings the gradient of `soft`.
    return (soft > 0.5).to(soft) + (soft - soft.detach())


def _noise(method: Method, counters: Tensor, place: int) -> Tensor:
    """Gumbel noise [*, 2] that depends only on counters [*] (document and text), seed, step and place."""
    # Two numbers per place, so the sides of place n draw at the sites 2 n and 2 n + 1 of the key.
    noise = [uniform_from(counters, draw_key(method.seed, method.step, 2 * place + side)) for side in range(2)]
    # Gumbel is -log(-log u); clamped, as u may be 0.
    return -(-torch.stack(noise, dim=-1).clamp(1e-12, 1 - 1e-12).log()).log().float()


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
    rows, columns = _indices(filled, whole=windows == 1 or call.training)
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


def _indices(mask: Tensor, *, whole: bool) -> tuple[Tensor, Tensor]:
    """Rows [N] and columns [N] of the true entries of a mask [B, W], or of all entries if `whole`."""
    if not whole:
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    places = torch.arange(mask.numel(), device=mask.device)
    return places // mask.shape[1], places % mask.shape[1]
