"""Records a method's decisions while a model runs: by listeners, or as a table for one text.

`AdaptiveModel.decisions` returns the decisions on a text in Python; `adaptive-bench inspect` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, Method, Site, SiteView
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.tokenization import without_appended_end

if TYPE_CHECKING:
    from pandas import DataFrame
    from transformers import PreTrainedTokenizerBase


BRANCHES = ("attention", "mlp")
_BEFORE = 8  # preceding tokens decoded with a piece: enough for a character of several tokens


@dataclass(frozen=True, eq=False)
class TextDecisions:
    """Decisions on S tokens in L layers of two branches, attention and MLP. A method that decides on whole layers has
    the same decisions for both.

    Attributes:
        token_ids, pieces: S tokens, the prompt's first, and the text of each.
        keep: [S, L, 2] boolean: whether the token executes the branch.
        scores: [S, L, 2] the scores by which the method ranks tokens (mean gate, router's output), NaN where it has
            none; `None` if no site has a score. Whether high or low scores execute depends on the method.
    """

    method: str
    dial: float
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]
    prompt_tokens: int
    keep: np.ndarray
    scores: np.ndarray | None

    @property
    def saved(self) -> float:
        """Share of token-branches skipped on this text."""
        return float(1.0 - self.keep.mean())

    def tidy(self) -> DataFrame:
        """One row for each token and site: `method`, `dial`, `part` (prompt, answer), `position`, `token_id`, `token`,
        `layer`, `branch`, `executes` and `score`.
        """
        import pandas

        tokens, layers, branches = self.keep.shape
        sites = layers * branches
        scores = np.full(self.keep.shape, np.nan) if self.scores is None else self.scores
        part = np.where(np.arange(tokens) < self.prompt_tokens, "prompt", "answer")
        return pandas.DataFrame(
            {
                "method": self.method,
                "dial": self.dial,
                "part": part.repeat(sites),
                "position": np.arange(tokens).repeat(sites),
                "token_id": np.asarray(self.token_ids).repeat(sites),
                "token": np.asarray(self.pieces, dtype=object).repeat(sites),
                "layer": np.tile(np.arange(layers).repeat(branches), tokens),
                "branch": np.tile(np.asarray(BRANCHES, dtype=object), tokens * layers),
                "executes": self.keep.ravel(),
                "score": scores.ravel(),
            }
        )


def text_decisions(
    model: ForwardModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    answer: Sequence[int] = (),
) -> TextDecisions:
    """The decisions on the token ids of a prompt and its answer at the dial of a model in `eval()` mode."""
    if model.method.kv_policy == "defer":
        raise UsageError(
            f"Decisions are read as a mask of tokens and branches, got {model.spec}, whose KV policy 'defer' lets "
            f"tokens wait until a later one runs all layers: that is no mask. Name another method, or another policy."
        )
    token_ids, context = (*map(int, prompt), *map(int, answer)), model.backbone.context_length
    if not 0 < len(token_ids) <= context:
        raise UsageError(
            f"A text has a token and must fit into the context of {context} tokens, got {len(token_ids)}. Shorten "
            "it, or lower --max-new-tokens."
        )
    keep = np.ones((len(token_ids), model.backbone.num_layers, 2), dtype=bool)
    scores = np.full(keep.shape, np.nan, dtype=np.float32)
    ids = torch.tensor([token_ids], device=model.backbone_model.device)
    # One pass, with the answer marked as continuation: a causal method decides as if it generated the answer.
    continuation = torch.arange(len(token_ids), device=ids.device)[None] >= len(prompt)
    with torch.inference_mode(), listening(model.method, lambda *heard: heard) as heard:
        model(ids, continuation_mask=continuation, logits_to_keep=1)
    for view, decision in heard:
        site, score = view.site, view.scores
        branches = [0, 1] if site.branch == "layer" else [BRANCHES.index(site.branch)]
        if decision.keep is not None:
            # [S, 1], for one branch or for both of a layer.
            keep[:, site.layer, branches] = decision.keep[0].cpu().numpy()[:, None]
        if score is None and decision.scale is not None:
            # A gate per number of the state is shown by its mean.
            score = decision.scale.float().mean(dim=-1)
        if score is not None:
            scores[:, site.layer, branches] = score[0].float().cpu().numpy()[:, None]
    return TextDecisions(
        method=str(model.spec),
        dial=float(model.dial),
        token_ids=token_ids,
        pieces=pieces_of(tokenizer, token_ids),
        prompt_tokens=len(prompt),
        keep=keep,
        scores=None if np.isnan(scores).all() else scores,
    )


def encoded(tokenizer: PreTrainedTokenizerBase, prompt: str, answer: str = "") -> tuple[list[int], list[int]]:
    """Token ids of a prompt (with the tokenizer's start token, no end token) and of an answer (with neither)."""
    first = without_appended_end(tokenizer, list(map(int, tokenizer(prompt).input_ids)))
    rest = tokenizer(answer, add_special_tokens=False).input_ids if answer else []
    return first, list(map(int, rest))


def pieces_of(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> tuple[str, ...]:
    """The text that each token adds; the start of a character of several tokens adds a replacement character."""

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)) if len(ids) else ""

    pieces = []
    for place in range(len(token_ids)):
        before = token_ids[max(0, place - _BEFORE) : place]
        until, whole = text(before), text([*before, token_ids[place]])
        # A piece in its context has its leading space, which some tokenizers drop at the start of a text.
        pieces.append(whole[len(until) :] if whole.startswith(until) else text([token_ids[place]]))
    return tuple(pieces)


def visible(piece: str) -> str:
    """A token's text without a leading space, with symbols for line ends, tabs, blank tokens and empty tokens."""
    text = piece.replace("\n", "↵").replace("\t", "⇥")
    return text.removeprefix(" ") if text.strip(" ") else "␣" * len(text) or "∅"


@contextmanager
def listening(method: Method, hear: Callable[[SiteView, Decision], Any]) -> Iterator[list[Any]]:
    """Collect `hear(view, decision)` of every site in a list, in execution order, for calls inside the block."""
    heard: list[Any] = []

    def listen(view: SiteView, decision: Decision) -> None:
        heard.append(hear(view, decision))

    method.listeners.append(listen)
    try:
        yield heard
    finally:
        method.listeners.remove(listen)


def recorded_decisions(method: Method) -> AbstractContextManager[list[tuple[Site, Decision]]]:
    """Collect every (site, decision) in a list, for calls inside the block. Padding never counts as kept."""

    def recorded(view: SiteView, decision: Decision) -> tuple[Site, Decision]:
        keep = view.call.valid if decision.keep is None else decision.keep & view.call.valid
        return view.site, replace(decision, keep=keep)

    return listening(method, recorded)
