"""What a tokenizer makes of a text that a model goes on with, which tokens end what the model writes, and which of its
scores are changed on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model.forward import ForwardModel


def without_appended_end(tokenizer: PreTrainedTokenizerBase, token_ids: list[int]) -> list[int]:
    """Token ids of a text, without the end token that some tokenizers put behind every text; one that the text itself
    ends in stays.
    """
    end = [tokenizer.eos_token_id]
    if token_ids[-1:] != end:
        return token_ids
    itself = tokenizer("a", add_special_tokens=False).input_ids[-1:]
    return token_ids[:-1] if tokenizer("a").input_ids[-1:] == end != itself else token_ids


def end_tokens(model: ForwardModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens that end a text: the tokenizer's end token, if it has one, and those of the model's generation config
    (chat models have several, and some name the end of a turn there alone), as in lm-eval's own models.
    """
    configured = model.backbone_model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(int(end) for end in ends if end is not None))


def logits_processors(model: ForwardModel) -> LogitsProcessorList:
    """What a model's generation config has done to the scores of a next token, be it drawn or the likeliest
    (Qwen2.5-0.5B-Instruct has a penalty of 1.1 for repeating), as in lm-eval's own models.
    """
    config, found = model.backbone_model.generation_config, LogitsProcessorList()
    if config.repetition_penalty not in (None, 1.0):
        found.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
    if config.no_repeat_ngram_size:
        found.append(NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size))
    return found
