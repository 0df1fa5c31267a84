"""Scores a backbone on items of a split without the harness: a quick check while pretraining and for its record."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import islice

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from .item import Item
from .math_problems import make_math_problem
from .qa_questions import LETTERS, make_one_hop, make_question
from .splits import Split, stream

_BATCH = 100
_MAX_NEW_TOKENS = 64
_ANSWER = re.compile(r"#### (-?[0-9]+|[A-E])")


@torch.inference_mode()
def score(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, split: Split, count: int, seed: int
) -> dict[str, float]:
    """Share of right answers per task, over `count` items each, decoded greedily."""
    model.eval()
    return {
        "nano_math": _generative(model, tokenizer, _items(make_math_problem, split, count, seed)),
        "nano_qa": _generative(model, tokenizer, _items(make_question, split, count, seed)),
        "nano_qa_ll": _direct(model, tokenizer, _items(make_one_hop, split, count, seed)),
    }


def _items(make: Callable[[random.Random], Item], split: Split, count: int, seed: int) -> list[Item]:
    return list(islice(stream(make, split, seed), count))


def _generative(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, items: list[Item]) -> float:
    right = 0
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        encoded = tokenizer([item.reasoned().prompt for item in batch], return_tensors="pt", padding=True)
        written = model.generate(  # type: ignore[misc]  # its annotations name `self` twice
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


def _direct(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, items: list[Item]) -> float:
    letters = [tokenizer.convert_tokens_to_ids(f"Ġ{letter}") for letter in LETTERS]
    encoded = tokenizer([item.direct().prompt for item in items], return_tensors="pt", padding=True)
    logits = model(
        input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], logits_to_keep=1
    ).logits  # [B, 1, V]
    chosen = logits[:, 0, letters].argmax(dim=-1).tolist()
    return sum(LETTERS[index] == item.answer for index, item in zip(chosen, items, strict=True)) / len(items)
