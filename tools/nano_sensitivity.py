"""Measures how much each branch of a backbone matters, and the backbone's scores without the harness.

Both go into the record of the weights. A branch matters as much as predictions change when a share of the tokens
bypasses it. In pretraining, tokens bypass branches at random, so that no single branch comes to carry everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adaptive_bench.tasks.nano.items import Item, Split, held_out
from adaptive_bench.tasks.nano.questions import make_math_problem, make_question
from adaptive_bench.tasks.nano.stories import Story, make_story


def branches(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """Name and module of every attention and MLP, in the order of execution."""
    for number, layer in enumerate(model.model.layers):
        yield f"{number} attention", layer.self_attn
        yield f"{number} mlp", layer.mlp


def bypass(branch: nn.Module, share: float, generator: torch.Generator, training: bool) -> RemovableHandle:
    """Lets each token bypass the branch with probability `share`, until the returned hook is removed.

    The remaining outputs are not scaled up, because a method that skips does not scale them either. A token that
    bypasses attention still gives its keys and values to other tokens.

    Args:
        branch: An attention or MLP whose output [B, S, H] is added to the residual stream.
        share: Probability in [0, 1).
        generator: Every token of every call draws from it.
        training: Whether tokens bypass the branch in training only, or in evaluation only.
    """

    def drop(branch: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> object:
        if branch.training != training:
            return None
        added = output if isinstance(output, Tensor) else output[0]
        kept = added * (torch.rand((*added.shape[:-1], 1), generator=generator) >= share)
        return kept if isinstance(output, Tensor) else (kept, *output[1:])

    if not 0 <= share < 1:
        raise ValueError(f"The share of tokens that bypass a branch lies in [0, 1), got {share}. Use 0 for none.")
    return branch.register_forward_hook(drop)


def add_branch_dropout(model: PreTrainedModel, share: float, seed: int) -> None:
    """Lets tokens bypass each branch with probability `share` in training, drawn independently for each branch."""
    generator = torch.Generator().manual_seed(seed)
    for _, branch in branches(model):
        bypass(branch, share, generator, training=True)


SKIPPED = 0.36  # share of the tokens; about what a method that skips everywhere must skip to save 20 % net
_TEXTS = 32


def sensitivities(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: int = _TEXTS
) -> dict[str, dict[str, float]]:
    """The `branch_divergences` on stories such as the backbone has read, and on the answers of the written tasks.

    Args:
        model: The backbone, pretrained or fine-tuned.
        tokenizer: The backbone's tokenizer.
        texts: Number of validation items of each kind.
    """
    stories = [tokenizer(story.text)["input_ids"] for story in held_out(make_story, "validation", texts)]
    found = {"nano_text": branch_divergences(model, stories, [1] * texts)}
    for name, make in (("nano_math", make_math_problem), ("nano_qa", make_question)):
        items = held_out(make, "validation", texts)
        rows = [tokenizer(f"{item.prompt} {item.target}")["input_ids"] for item in items]
        found[name] = branch_divergences(model, rows, [len(tokenizer(item.prompt)["input_ids"]) for item in items])
    return found


def dominance(divergences: dict[str, float]) -> float:
    """The largest divergence as a multiple of the median one."""
    return max(divergences.values()) / median(divergences.values())


@torch.inference_mode()
def branch_divergences(
    model: PreTrainedModel, rows: Sequence[list[int]], starts: Sequence[int], share: float = SKIPPED, seed: int = 1
) -> dict[str, float]:
    """For each branch, the mean KL divergence in nats of next-token distributions when a share of tokens bypasses it.

    The divergence is taken from the full model's distributions.

    Args:
        model: The backbone.
        rows: Token ids of each text.
        starts: For each text, the index of the first token whose prediction counts, at least 1. Earlier tokens may
            bypass the branch too.
        share: Share of the tokens that bypass the branch, drawn at random.
        seed: Seed of the draws, which are the same for every branch.
    """
    model.eval()
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # right padding is invisible
    places = torch.arange(1, ids.shape[1])
    counted = (places >= torch.tensor(starts)[:, None]) & (places < torch.tensor([len(row) for row in rows])[:, None])

    def predicted() -> torch.Tensor:
        return log_softmax(model(input_ids=ids).logits[:, :-1][counted], dim=-1)

    full, found = predicted(), {}
    for name, branch in branches(model):
        hook = bypass(branch, share, torch.Generator().manual_seed(seed), training=False)
        try:
            found[name] = float(kl_div(predicted(), full, log_target=True, reduction="batchmean"))
        finally:
            hook.remove()
    return found


_BATCH = 100
_MAX_NEW_TOKENS = 64
_ANSWER = re.compile(r"#### (-?\w+)")


@torch.inference_mode()
def score(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, split: Split, count: int
) -> dict[str, dict[str, float]]:
    """For each task, over `count` items: the share of right answers, decoded greedily, or bits per byte of stories."""
    model.eval()
    questions = held_out(make_question, split, count)
    return {
        "nano_math": {"exact_match": _generative(model, tokenizer, held_out(make_math_problem, split, count))},
        "nano_qa": {"exact_match": _generative(model, tokenizer, questions)},
        "nano_qa_ll": {"acc": _stated(model, tokenizer, questions)},
        "nano_text": {"bits_per_byte": _bits_per_byte(model, tokenizer, held_out(make_story, split, count))},
    }


def _generative(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, items: list[Item]) -> float:
    right = 0
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        encoded = tokenizer([item.prompt for item in batch], return_tensors="pt", padding=True)
        written = model.generate(  # type: ignore[operator]  # torch's types allow a tensor here
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            max_new_tokens=_MAX_NEW_TOKENS,
            do_sample=False,
        )
        texts = tokenizer.batch_decode(written[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
        for item, text in zip(batch, texts, strict=True):
            found = _ANSWER.search(text)
            right += found is not None and found[1] == item.answer
    return right / len(items)


def _stated(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, items: list[Item]) -> float:
    """Share of items whose right statement is the likeliest."""
    right = 0
    for item in items:
        prompt = tokenizer(item.prompt)["input_ids"]
        claims = [tokenizer(f" {text}", add_special_tokens=False)["input_ids"] for text in item.statements]
        losses = _token_losses(model, [prompt + claim for claim in claims])
        right += int(losses[:, len(prompt) - 1 :].sum(dim=1).argmin()) == item.right
    return right / len(items)


def _bits_per_byte(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stories: list[Story]) -> float:
    losses = 0.0
    for start in range(0, len(stories), _BATCH):
        batch = tokenizer([story.text for story in stories[start : start + _BATCH]])["input_ids"]
        losses += float(_token_losses(model, batch).sum())
    return losses / math.log(2) / sum(len(story.text.encode()) for story in stories)


def _token_losses(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Loss of every token but the first, 0 on padding: [B, S - 1]."""
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-100)
    logits = model(input_ids=ids.clamp(min=0)).logits  # right padding is invisible to real tokens
    return cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
