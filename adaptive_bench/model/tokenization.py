"""Turns text into tokens: chat templates, token ids of texts, end tokens, and logits processors of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model.forward import ForwardModel


def check_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer without a chat template."""
    if not tokenizer.chat_template:
        raise UsageError(
            "chat_template: true is for models whose tokenizer has a chat template, but that of this model has none. "
            "Leave it out, or choose an instruction-tuned --model."
        )


def conversation(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[dict[str, str]],
    add_generation_prompt: bool = True,
    **keywords: Any,
) -> str:
    """The text of messages (`role`, `content`), up to where the model begins to answer. Without
    `add_generation_prompt`, up to the end of the last message, which the model continues.

    Args:
        keywords: Further variables of the template, such as `enable_thinking`; `None` leaves a variable out.
    """
    check_chat_template(tokenizer)
    ending = {"add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
    given = {name: value for name, value in keywords.items() if value is not None}
    return _rendered(tokenizer, messages, **ending, **given)


def as_turns(tokenizer: PreTrainedTokenizerBase, prompt: str, answer: str) -> tuple[str, str]:
    """A question and its answer as the chat template writes them, split where the answer begins. If the template ends
    an answer with the end token, that is left out, since the encoder adds it.
    """
    asked = {"role": "user", "content": prompt}
    before = conversation(tokenizer, [asked])
    said = [asked, {"role": "assistant", "content": answer.strip()}]
    whole = _rendered(tokenizer, said)
    if not whole.startswith(before):
        raise EnvironmentProblem(
            "A chat template writes a question alike with and without its answer, but that of this model does not: "
            f"{before[-80:]!r} is not how {whole[:200]!r} begins. Leave chat_template out."
        )
    return before, whole.removeprefix(before).rstrip().removesuffix(str(tokenizer.eos_token))


def template_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """The sha256 of the chat template."""
    return hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[dict[str, str]], **ending: Any) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **ending))
    except (TemplateError, ValueError) as error:
        roles = ", ".join(message["role"] for message in messages)
        raise EnvironmentProblem(
            f"The tokenizer's chat template must take messages of {roles}, but refuses them: {message_of(error)}. "
            f"Leave chat_template out, or the system prompt, or set --num-fewshot 0."
        ) from error


def without_appended_end(tokenizer: PreTrainedTokenizerBase, token_ids: list[int]) -> list[int]:
    """Token ids of a text without the end token that some tokenizers append; an end token within the text stays."""
    end = [tokenizer.eos_token_id]
    if token_ids[-1:] != end:
        return token_ids
    # The tokenizer appends its end token if it does so after any text that does not end with it.
    itself = tokenizer("a", add_special_tokens=False).input_ids[-1:]
    return token_ids[:-1] if tokenizer("a").input_ids[-1:] == end != itself else token_ids


def end_tokens(model: ForwardModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens that end a text: the tokenizer's end token, if it has one, and those of the model's generation config, as
    in lm-eval's own models. (Chat models have several, and some name the end of a turn only in that config.)
    """
    configured = model.backbone_model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(int(end) for end in ends if end is not None))


def logits_processors(model: ForwardModel) -> LogitsProcessorList:
    """The processors that a model's generation config applies to the logits of every next token, greedy or sampled, as
    in lm-eval's own models (Qwen2.5-0.5B-Instruct has a repetition penalty of 1.1).
    """
    config, found = model.backbone_model.generation_config, LogitsProcessorList()
    if config.repetition_penalty not in (None, 1.0):
        found.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
    if config.no_repeat_ngram_size:
        found.append(NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size))
    return found
