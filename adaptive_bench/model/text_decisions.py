"""What a method decides while a model runs: listened to, read off one text token by token, or digested.

`AdaptiveModel.decisions` gives the decisions on a text in Python, `adaptive-bench inspect` shows them. Equal digests of
two specs (`behaviour`) mean that a parameter changes nothing, which is a mistake in the spec or in the method.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, Method, Site, SiteView, method_class
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.tokenization import without_appended_end
from adaptive_bench.spec import MethodSpec

if TYPE_CHECKING:
    from pandas import DataFrame
    from transformers import PreTrainedTokenizerBase


BRANCHES = ("attention", "mlp")
_BEFORE = 8  # tokens that a piece is decoded after: enough for a letter of several tokens


@dataclass(frozen=True, eq=False)
class TextDecisions:
    """Decisions on S tokens in L layers of two branches, attention and MLP; a method that decides on whole layers says
    the same of both.

    Attributes:
        method: Spec.
        dial: The dial value, in the method's own unit.
        token_ids: S tokens, the prompt's first.
        pieces: Of each token its part of the text.
        prompt_tokens: How many of the tokens are the prompt's.
        keep: [S, L, 2] boolean: whether the token executes the branch.
        scores: [S, L, 2] what the method ranks tokens by (mean gate, router's output), NaN where it has none; `None`
            where no site has one. Which way they count is the method's matter.
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
        """Share of token-branches that are skipped on this text."""
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


def check_readable(model: ForwardModel) -> None:
    """Refuse a model whose decisions are no mask of a text."""
    if model.method.kv_policy == "defer":
        raise UsageError(
            f"Decisions are read as a mask of tokens and branches, got {model.spec}, whose KV policy 'defer' lets "
            f"tokens wait until a later one runs all layers: that is no mask. Name another method, or another policy."
        )


def text_decisions(
    model: ForwardModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    answer: Sequence[int] = (),
) -> TextDecisions:
    """The decisions on a text of one token or more at the model's dial.

    Args:
        model: In `eval()` mode.
        prompt, answer: Token ids; how they are cut matters to methods that treat the two differently.
    """
    check_readable(model)
    token_ids, context = (*map(int, prompt), *map(int, answer)), model.backbone.context_length
    if not 0 < len(token_ids) <= context:
        raise UsageError(
            f"A text has a token and must fit into the context of {context} tokens, got {len(token_ids)}. Give another."
        )
    keep = np.ones((len(token_ids), model.backbone.num_layers, 2), dtype=bool)
    scores = np.full(keep.shape, np.nan, dtype=np.float32)
    ids = torch.tensor([token_ids], device=model.backbone_model.device)
    # In one pass with the answer as such: a causal method decides as if it wrote it.
    continuation = torch.arange(len(token_ids), device=ids.device)[None] >= len(prompt)
    with inference(model), listening(model.method, lambda *heard: heard) as heard:
        model(ids, continuation_mask=continuation, logits_to_keep=1)
    for view, decision in heard:
        site, score = view.site, view.scores
        branches = [0, 1] if site.branch == "layer" else [BRANCHES.index(site.branch)]
        if decision.keep is not None:
            keep[:, site.layer, branches] = decision.keep[0].cpu().numpy()[:, None]
        if score is None and decision.scale is not None:
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
    """Token ids of a prompt, with the tokenizer's own start token and no end token, and of an answer, with neither."""
    first = without_appended_end(tokenizer, list(map(int, tokenizer(prompt).input_ids)))
    rest = tokenizer(answer, add_special_tokens=False).input_ids if answer else []
    return first, list(map(int, rest))


def pieces_of(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> tuple[str, ...]:
    """What each token adds to the text; a token that begins a letter of several adds a replacement character."""

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)) if len(ids) else ""

    pieces = []
    for place in range(len(token_ids)):
        before = token_ids[max(0, place - _BEFORE) : place]
        until, whole = text(before), text([*before, token_ids[place]])
        pieces.append(whole[len(until) :] if whole.startswith(until) else text([token_ids[place]]))
    return tuple(pieces)


def visible(piece: str) -> str:
    """A token's text with what cannot be seen made visible: spaces at its ends, ends of lines, nothing at all."""
    text = piece.replace("\n", "↵").replace("\t", "⇥")
    return text.removeprefix(" ") if text.strip(" ") else "␣" * len(text) or "∅"


@contextmanager
def listening(method: Method, hear: Callable[[SiteView, Decision], Any]) -> Iterator[list[Any]]:
    """The list fills with what is heard of the method's view and decision at every site, in execution order."""
    heard: list[Any] = []

    def listen(view: SiteView, decision: Decision) -> None:
        heard.append(hear(view, decision))

    method.listeners.append(listen)
    try:
        yield heard
    finally:
        method.listeners.remove(listen)


def recorded_decisions(method: Method) -> AbstractContextManager[list[tuple[Site, Decision]]]:
    """The list fills with every (site, decision) of the calls inside the block. Padding is never kept."""

    def recorded(view: SiteView, decision: Decision) -> tuple[Site, Decision]:
        keep = view.call.valid if decision.keep is None else decision.keep & view.call.valid
        return view.site, replace(decision, keep=keep)

    return listening(method, recorded)


def inference(model: ForwardModel) -> torch.inference_mode | torch.no_grad:
    """The context to read texts in: torch's inference mode, or for a plugin's method the absence of gradients alone.

    Tensors that are made in inference mode do not count how often they are written into, and so nobody would notice a
    method that writes into what it is shown.
    """
    name = model.spec.name
    is_ours = name in registry.names("methods") and not registry.is_foreign("methods", name)
    return torch.inference_mode() if is_ours else torch.no_grad()


@torch.no_grad()
def behaviour(model: ForwardModel, text: Mapping[str, Tensor], dials: Iterable[float]) -> str:
    """Digest of every decision and every logit at some dials, bit for bit. The model's dial comes back as it was."""
    digest, before = hashlib.sha256(), model.dial
    for dial in dials:
        model.dial = dial
        with recorded_decisions(model.method) as decisions:
            logits = model(**text).logits[text["attention_mask"].bool()]
        for site, decision in decisions:
            digest.update(f"{site}".encode())
            for part in (decision.keep, decision.scale, decision.input_scale):
                digest.update(_bytes(part))
        digest.update(_bytes(logits))
    model.dial = before
    return digest.hexdigest()


def _bytes(tensor: Tensor | None) -> bytes:
    return b"none" if tensor is None else tensor.detach().double().cpu().numpy().tobytes()


def duplicate_warnings(behaviours: Mapping[MethodSpec, str]) -> list[str]:
    """One sentence per group of specs that do the same and do not say the same.

    Two semantics that agree, and a parameter set to what its default `None` stands for, say the same; rules that may
    pick the same layers are no mistake.
    """
    groups: defaultdict[str, list[MethodSpec]] = defaultdict(list)
    for spec, digest in behaviours.items():
        groups[digest].append(spec)
    warnings = []
    for group in groups.values():
        distinct: list[MethodSpec] = []
        for spec in group:
            if not any(says_the_same(spec, other) for other in distinct):
                distinct.append(spec)
        if len(distinct) > 1:
            names = ", ".join(map(str, distinct[:-1])) + f" and {distinct[-1]}"
            warnings.append(
                f"{names} made the same decisions and gave the same logits on the same text, so what tells them apart "
                "changes nothing. Check that the method reads that parameter, and leave one of them out."
            )
    return warnings


def says_the_same(one: MethodSpec, other: MethodSpec) -> bool:
    """Whether two specs differ only in semantics, in parameters whose default, `None`, leaves the choice open, and in
    those whose values may agree (`MethodConfig.may_agree`).
    """
    config = method_class(one).Config
    mine, theirs = ({key: value for key, value in spec.params if key not in config.may_agree} for spec in (one, other))
    if one.name != other.name or any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys()):
        return False
    fields = config.model_fields
    return all(fields[key].default is None for key in mine.keys() ^ theirs.keys())
