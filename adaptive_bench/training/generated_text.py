"""Generates calibration text: the prompts of training text, continued by the model itself.

Generated answers differ from gold answers, and in decoding thresholds are applied to generated ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adaptive_bench.model.generation import generate_queue
from adaptive_bench.model.tokenization import end_tokens, logits_processors
from adaptive_bench.training.encoding import EncodedExample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


def generated_text(
    model: AdaptiveModel, examples: Sequence[EncodedExample], tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> list[EncodedExample]:
    """The examples with the model's own greedy answers, generated with nothing skipped, instead of the gold answers.

    An answer ends where the model ends it, or at the length of the longest gold answer of the batch.
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
