"""Scores a backbone on items of a split without the harness: a quick check while pretraining and for its record."""

from __future__ import annotations

import math
import re

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .harness_docs import held_out
from .item import Item
from .math_problems import make_math_problem
from .qa_questions import make_question
from .splits import Split
from .stories import Story, make_story

_BATCH = 100
_MAX_NEW_TOKENS = 64
_ANSWER = re.compile(r"#### (-?\w+)")


@torch.inference_mode()
def score(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, split: Split, count: int
) -> dict[str, dict[str, float]]:
    """Per task over `count` items: share of right answers, decoded greedily, or bits per byte of the stories."""
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
        written = model.generate(  # type: ignore[operator]  # of a PreTrainedModel it may be a tensor, says torch
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
    """Share of items whose true statement is the likeliest."""
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
