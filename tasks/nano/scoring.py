"""Scores a backbone on items of a split without the harness: a quick check while pretraining and for its record."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import islice

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from .item import Item
from .math_problems import make_math_problem
from .qa_questions import make_question, make_two_hop
from .splits import Split, stream

_BATCH = 100
_MAX_NEW_TOKENS = 64
_ANSWER = re.compile(r"#### (-?\w+)")


@torch.inference_mode()
def score(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, split: Split, count: int, seed: int
) -> dict[str, float]:
    """Share of right answers per task, over `count` items each, decoded greedily."""
    model.eval()
    return {
        "nano_math": _generative(model, tokenizer, _items(make_math_problem, split, count, seed)),
        "nano_qa": _generative(model, tokenizer, _items(make_question, split, count, seed)),
        "nano_qa_ll": _stated(model, tokenizer, _items(make_two_hop, split, count, seed)),
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


def _stated(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, items: list[Item]) -> float:
    """Share of items whose true statement is the likeliest."""
    right = 0
    for item in items:
        prompt = tokenizer(item.stated().prompt)["input_ids"]
        claims = [tokenizer(f" {text}", add_special_tokens=False)["input_ids"] for text in item.statements]
        rows = [torch.tensor(prompt + claim) for claim in claims]
        ids = pad_sequence(rows, batch_first=True, padding_value=-100)
        logits = model(input_ids=ids.clamp(min=0)).logits  # right padding is invisible to real tokens
        losses = cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
        right += int(losses[:, len(prompt) - 1 :].sum(dim=1).argmin()) == item.right
    return right / len(items)
