"""Turns examples into token ids, in the order in which every method of a run sees them.

The prompt is masked in the loss, the end-of-sequence token is learned.

Documents without a prompt are packed: concatenated, each with its end token, and cut into sequences of full length.

The prompt's tokens are those that the model sees at evaluation, followed by the completion's. The last token of a text
is only a label: nothing follows it, so generation and scoring never feed it. It is masked like padding, and so does not
count in whatever a method distributes over tokens (budgets, capacities, thresholds, penalties).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.method import document_key
from adaptive_bench.model.generation import generate_queue
from adaptive_bench.model.tokenization import as_turns, end_tokens, logits_processors, without_appended_end
from adaptive_bench.progress import Reporter
from adaptive_bench.task import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel

IGNORED_LABEL = -100


@dataclass(frozen=True)
class EncodedExample:
    """One encoded example: `token_ids[prompt_length:]` is the completion with its end-of-sequence token."""

    token_ids: tuple[int, ...]
    prompt_length: int
    truncated: bool = False

    @cached_property
    def document(self) -> int:
        """Key for random draws: draws of different examples are independent, even if they share a beginning."""
        return document_key(*self.token_ids)

    @property
    def loss_tokens(self) -> int:
        """Number of predicted tokens: all completion tokens that follow another token."""
        return len(self.token_ids) - max(self.prompt_length, 1)


def encode_examples(
    examples: Iterable[Example],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    reporter: Reporter,
    *,
    chat_template: bool = False,
) -> list[EncodedExample]:
    """Encode examples, with documents without a prompt at the end, and report how many had to be cut. With
    `chat_template`, every example with a prompt is one exchange in the tokenizer's chat template.
    """
    if max_length < 2:
        raise UsageError(f"A training sequence needs at least 2 tokens, got train.max_length {max_length}.")
    examples = list(examples)
    put = partial(_encode_chat if chat_template else _encode, tokenizer=tokenizer, max_length=max_length)
    encoded = [put(example) for example in examples if example.prompt]
    encoded += _packed((example.completion for example in examples if not example.prompt), tokenizer, max_length)
    if cut := sum(example.truncated for example in encoded):
        reporter.line(
            f"{cut} of {len(encoded)} training sequences are longer than {max_length} tokens: the beginning of the "
            f"prompt (then the end of the completion) is cut. Raise train.max_length to keep them whole."
        )
    return encoded


def _packed(documents: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[EncodedExample]:
    """Sequences of `max_length` tokens (the last may be shorter), each beginning with the last token of the previous
    one, which was only a label there: every token but the first is predicted once, every token but the last read once.
    """
    stream: list[int] = []
    for document in documents:
        stream += [*_without_last_end(tokenizer(document).input_ids, tokenizer), int(tokenizer.eos_token_id)]
    # A last piece of one token would predict nothing, hence the first - 1.
    starts = range(0, len(stream) - 1, max_length - 1)
    return [EncodedExample(tuple(stream[start : start + max_length]), 0) for start in starts]


def _encode_chat(example: Example, tokenizer: PreTrainedTokenizerBase, max_length: int) -> EncodedExample:
    """Encode an example in the chat template, which contains its own start token."""
    prompt, completion = as_turns(tokenizer, example.prompt, example.completion)
    return _encode(Example(prompt, completion), tokenizer, max_length, add_special_tokens=False)


def _encode(
    example: Example, tokenizer: PreTrainedTokenizerBase, max_length: int, add_special_tokens: bool = True
) -> EncodedExample:
    texts = [example.prompt, example.prompt + example.completion]
    encoded = tokenizer(texts, add_special_tokens=add_special_tokens).input_ids
    prompt = without_appended_end(tokenizer, encoded[0]) if add_special_tokens else encoded[0]
    whole = _without_last_end(encoded[1], tokenizer)
    if whole[: len(prompt)] == prompt:
        completion = whole[len(prompt) :]
    else:
        # A token spans the boundary. At evaluation the prompt is encoded alone, so it is encoded alone here too.
        completion = tokenizer(example.completion, add_special_tokens=False).input_ids
    completion = [*completion, tokenizer.eos_token_id]
    truncated = len(prompt) + len(completion) > max_length
    if truncated:
        completion = completion[:max_length]
        # What is left for the prompt: its end, next to the answer, and its start token if it has one.
        room = max_length - len(completion)
        has_start = bool(prompt) and prompt[0] == tokenizer.bos_token_id
        if has_start and room > 1:
            prompt = [prompt[0], *prompt[len(prompt) - room + 1 :]]
        else:
            prompt = prompt[len(prompt) - room :]
    return EncodedExample((*prompt, *completion), len(prompt), truncated)


def _without_last_end(token_ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Drop an end-of-sequence token that the tokenizer appended to a whole text, since the encoder appends its own."""
    if token_ids and token_ids[-1] == tokenizer.eos_token_id:
        return token_ids[:-1]
    return token_ids


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that fills short rows: any will do, since every batch has an attention mask."""
    return int(tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id)


def training_batch(
    examples: Sequence[EncodedExample], pad_id: int, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """A `calibration_batch` with `labels` [B, S]: the completion with its end token, without prompt and padding."""
    batch = calibration_batch(examples, pad_id, device)
    batch["labels"] = torch.full_like(batch["input_ids"], IGNORED_LABEL)
    for row, example in enumerate(examples):
        learned = slice(example.prompt_length, len(example.token_ids))
        batch["labels"][row, learned] = batch["input_ids"][row, learned]
    return batch


def calibration_batch(
    examples: Sequence[EncodedExample], pad_id: int, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Right-padded `input_ids`, `attention_mask` and boolean `continuation_mask`, each [B, S], and `documents` [B].

    Both masks leave out the last token of each text, which is only a label; `continuation_mask` marks the rest of the
    completion.
    """
    length = max(len(example.token_ids) for example in examples)
    input_ids = torch.full((len(examples), length), pad_id)
    attention_mask = torch.zeros_like(input_ids)
    continuation_mask = torch.zeros_like(input_ids, dtype=torch.bool)
    for row, example in enumerate(examples):
        end = len(example.token_ids)
        input_ids[row, :end] = torch.tensor(example.token_ids)
        attention_mask[row, : end - 1] = 1
        continuation_mask[row, example.prompt_length : end - 1] = True
    batch = {"input_ids": input_ids, "attention_mask": attention_mask, "continuation_mask": continuation_mask}
    batch["documents"] = torch.tensor([example.document for example in examples])
    return {name: tensor.to(device) for name, tensor in batch.items()}


def calibration_batches(
    examples: Sequence[EncodedExample], pad_id: int, batch_size: int, device: torch.device | str = "cpu"
) -> list[dict[str, Tensor]]:
    """All examples in batches of rows with similar lengths."""
    ordered = sorted(examples, key=lambda example: len(example.token_ids))
    chunks = (ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size))
    return [calibration_batch(chunk, pad_id, device) for chunk in chunks]


def generated_text(
    model: AdaptiveModel, examples: Sequence[EncodedExample], tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> list[EncodedExample]:
    """The examples with the model's own greedy answers, generated with nothing skipped, instead of the gold answers.

    An answer ends where the model ends it, or at the length of the longest gold answer of the batch. Calibration may
    use them because they differ from gold answers, and in decoding thresholds are applied to generated ones.
    """
    kept = model.dial  # the dial is changed through `method.value`, which does not reset the ledger
    model.method.value = model.method.dial.skip_nothing
    ends, processors = end_tokens(model, tokenizer), logits_processors(model)
    # Texts of a batch are written side by side, so similar prompts need little padding.
    ordered = sorted(examples, key=lambda example: example.prompt_length)
    generated = []
    for start in range(0, len(ordered), batch_size):
        chunk = ordered[start : start + batch_size]
        prompts = [example.token_ids[: example.prompt_length] for example in chunk]
        # Gold answers include their end token, so `longest` has room for one.
        longest = max(len(example.token_ids) - example.prompt_length for example in chunk)
        answers = generate_queue(
            model, prompts, rows=batch_size, max_new_tokens=longest, eos_token_ids=ends, processors=processors
        )
        for prompt, answer in zip(prompts, answers, strict=True):
            ended = answer if answer and answer[-1] in ends else [*answer, ends[0]]  # the last token is never fed
            generated.append(EncodedExample((*prompt, *ended), len(prompt), truncated=False))
    model.method.value = kept
    return generated


class DataOrder:
    """The order of examples: `order[step]` is the tuple of example indices of one optimizer step, counted from 0.

    Each epoch goes through the examples in its own seeded permutation. Any step can be computed directly, so a resumed
    training needs no replay. The order depends only on the count, the batch size and the seed.
    """

    def __init__(self, count: int, batch_size: int, steps: int, seed: int) -> None:
        if count < 1 and steps:
            raise EnvironmentProblem("Training needs at least one example, got none. Check the data of train_on.")
        self.count, self.batch_size, self.steps, self.seed = count, batch_size, steps, seed
        # A step may reach from one epoch into the next.
        self._epoch = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, epoch: int) -> list[int]:
        permutation: list[int] = np.random.default_rng([self.seed, epoch]).permutation(self.count).tolist()
        return permutation

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> tuple[int, ...]:
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of {self.steps}")
        positions = range(step * self.batch_size, (step + 1) * self.batch_size)
        return tuple(self._epoch(position // self.count)[position % self.count] for position in positions)


def order_digest(examples: Sequence[EncodedExample], order: DataOrder) -> str:
    """The sha256 of the token ids in training order: equal digests mean equal tokens in equal order."""
    digest = hashlib.sha256()
    for step in range(len(order)):
        for example in (examples[index] for index in order[step]):
            # With the lengths, so that tokens cannot move from one example to the next unnoticed.
            header = (len(example.token_ids), example.prompt_length)
            # Little-endian and 64 bits wide: the same bytes on every machine.
            digest.update(np.array([*header, *example.token_ids], dtype="<i8").tobytes())
    return digest.hexdigest()


def describe(encoded: Sequence[EncodedExample], order: DataOrder) -> dict[str, Any]:
    """What a record says of its training data."""
    used = [encoded[index] for step in range(len(order)) for index in order[step]]
    return {
        "examples": len(encoded),
        "truncated_examples": sum(example.truncated for example in encoded),
        "prompt_tokens": _spread([example.prompt_length for example in encoded]),
        "completion_tokens": _spread([len(example.token_ids) - example.prompt_length for example in encoded]),
        "sequences": len(used),
        "tokens": sum(len(example.token_ids) for example in used),
        "loss_tokens": sum(example.loss_tokens for example in used),
        "order_sha256": order_digest(encoded, order),
    }


def _spread(lengths: Sequence[int]) -> dict[str, int]:
    """Minimum, median, 95th percentile and maximum of some lengths."""
    ordered = sorted(lengths) or [0]
    at = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    return {name: ordered[math.ceil(share * (len(ordered) - 1))] for name, share in at.items()}
