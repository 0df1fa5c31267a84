"""What routers share: a choice between executing and skipping that is sampled in training, and a decision per prompt.

The choice is hard forward, with the gradient of a soft one ("Categorical Reparameterization with Gumbel-Softmax",
https://arxiv.org/abs/1611.01144).

A decision per prompt is made once from the pooled states of the prompt, and used for every token that is written. The
prompt itself executes everything, so the rule depends on earlier text alone (class C0) and on no other row. What came
out is kept in the session: later calls, beams, rows that go and come, and drafts take it from there. Where a text is
scored, its context is the prompt; what is scored never enters.
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
    """A method whose routers give two logits, of executing and of skipping.

    Training samples a hard choice that has the gradient of a soft one; inference takes the larger logit, with an offset
    on the execute logit as the dial.

    Attributes:
        execute: Which of the two logits is that of executing.
    """

    execute: ClassVar[int] = 0
    solves_dial = True

    @property
    def dial(self) -> DialSpec:
        """Offset on the execute logit; at its largest value everything executes, whatever the logits."""
        return DialSpec("execute_offset", -50.0, 50.0, 50.0)

    def route(self, view: SiteView, logits: Tensor, *, temperature: float, place: int) -> Decision:
        """The decision that logits [B, S, 2] make; see `sampled_choice` for the rest."""
        if not view.call.training:
            return EXECUTE_ALL if self.value == self.dial.skip_nothing else Decision(keep=self.runs(logits))
        executed = sampled_choice(self, view, logits, chosen=self.execute, temperature=temperature, place=place)
        view.record(executed=executed)
        return Decision(scale=executed[..., None])

    def runs(self, logits: Tensor) -> Tensor:
        """Boolean [...]: whether executing wins at the dial, of logits [..., 2]."""
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
    """Whether side `chosen` of the logits [B, S, 2] wins with noise added: exactly 0 or 1, [B, S].

    Args:
        temperature: Of the soft choice whose gradient it has.
        place: Number of whoever chooses, apart from all others of the call.
        counters: What the noise is drawn from, of the shape of the choices; by default those of the tokens.
    """
    counters = view.call.draw_counters if counters is None else counters
    soft = ((logits + _noise(method, counters, place)) / temperature).softmax(dim=-1)[..., chosen]
    return (soft > 0.5).to(soft) + (soft - soft.detach())


def _noise(method: Method, counters: Tensor, place: int) -> Tensor:
    """Gumbel noise [*, 2] that depends on counters [*] (document and text), seed, step and place alone."""
    noise = [uniform_from(counters, draw_key(method.seed, method.step, 2 * place + side)) for side in range(2)]
    return -(-torch.stack(noise, dim=-1).clamp(1e-12, 1 - 1e-12).log()).log().float()


def prompt_outputs(view: SiteView, network: nn.Module, *, windows: int = 1, states: Tensor | None = None) -> Tensor:
    """[B, O] what a network says of each row's prompt at this site: the mean of what it says of the prompt's windows.

    The first W floor(T / W) of a prompt's T tokens are cut into W windows of equal length (W = T where a prompt is
    shorter), and the states are averaged over each. The network runs once per window and prompt, and is booked
    for the prompt's last token. Call this at every site of every call, whatever the dial: a dial may be turned after
    the prompt was read.

    Args:
        network: One of the method's maps, [N, H] to [N, O].
        windows: W.
        states: [B, S, H], by default the residual stream as it is. On real models the mean of that is the first token,
            whose norm is a hundred times the others': give `view.levelled`.
    """
    call, name = view.call, f"prompt_{view.site.number}"
    known = call.session.state.get(name)
    if known is not None:
        if call.reads_prompt:
            raise UsageError(
                "A decision per prompt needs the whole prompt in one call, got more tokens of a prompt in a later "
                "one. Give prompts whole, and say by continuation_mask which tokens follow them."
            )
        return known
    belongs = window_numbers(call.context, windows)
    pooled, filled = window_means(view.hidden if states is None else states, belongs, windows)
    # Training waits for no device to learn which windows are empty, and keeps no books: it runs them all.
    rows, columns = _indices(filled, whole=windows == 1 or call.training)
    tokens = rows * call.context.shape[1] + last_true(call.context)[rows]
    said = call.run_map(view.site.layer, network, pooled[rows, columns].float(), tokens)
    everywhere = said.new_zeros(*filled.shape, said.shape[-1]).index_put((rows, columns), said)
    outputs = (everywhere * filled[..., None]).sum(dim=1) / filled.sum(dim=1, keepdim=True).clamp(min=1)
    call.session.state[name] = outputs.detach()
    return outputs


def known_outputs(session: Session, site: Site) -> Tensor:
    """What `prompt_outputs` said at a site in an earlier call of a session, [B, O]."""
    return session.state[f"prompt_{site.number}"]


def window_numbers(context: Tensor, windows: int) -> Tensor:
    """[B, S] the window 0 .. W - 1 of each token of the prompts [B, S] (boolean); -1 for those of none."""
    lengths = context.sum(dim=1, keepdim=True)
    count = lengths.clamp(min=1, max=windows)
    size = (lengths // count).clamp(min=1)
    place = context.cumsum(dim=1) - 1
    return torch.where(context & (place < count * size), place // size, -1)


def window_means(states: Tensor, belongs: Tensor, windows: int) -> tuple[Tensor, Tensor]:
    """Means [B, W, H] of states [B, S, H] over windows [B, S], and which windows [B, W] hold any token.

    Summed in double precision: padding, which adds zeros in another order, turns no decision.
    """
    inside = [belongs == window for window in range(windows)]
    sizes = torch.stack([mask.sum(dim=1) for mask in inside], dim=1)
    sums = [states.masked_fill(~mask[..., None], 0.0).sum(dim=1, dtype=torch.float64) for mask in inside]
    return torch.stack(sums, dim=1) / sizes.clamp(min=1)[..., None], sizes > 0


def _indices(mask: Tensor, *, whole: bool) -> tuple[Tensor, Tensor]:
    """Rows [N] and columns [N] of what is true in a mask [B, W], or of the whole of it."""
    if not whole:
        rows, columns = mask.nonzero(as_tuple=True)
        return rows, columns
    places = torch.arange(mask.numel(), device=mask.device)
    return places // mask.shape[1], places % mask.shape[1]
