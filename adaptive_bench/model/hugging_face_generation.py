"""Generates with Hugging Face's arguments: their library interprets the arguments, and our loop generates.

Their library turns arguments into logits processors and stopping criteria, and hands these to our loop instead of
running its own. Arguments that our loop does not support are refused by name.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any, cast

import torch
from torch import LongTensor, Tensor
from torch.nn import functional
from transformers import GenerationConfig, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.stopping_criteria import StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.errors import UsageError
from adaptive_bench.model.arguments import check_arguments
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import check_prompts

ENDS_WITH_CONTEXT = "A text ends with the model's context"  # the beginning of a warning
_WRITES = {GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE}


@torch.no_grad()
def generate(
    model: ForwardModel,
    inputs: Tensor | None = None,
    generation_config: GenerationConfig | None = None,
    *,
    streamer: Any = None,
    generator: torch.Generator | None = None,
    **kwargs: Any,
) -> Tensor | GenerateDecoderOnlyOutput:
    """Continue prompts greedily or by sampling, with the arguments of Hugging Face's `generate`.

    These arguments have the same meaning as in Hugging Face: lengths, end tokens, everything that works on logits
    (temperature, top_k, top_p, penalties, your own processors), stopping criteria, stop strings (with `tokenizer`),
    streamers, `num_return_sequences`, and `return_dict_in_generate` with scores and logits. A row ends with the context
    at the latest. A finished row leaves the batch: nothing more is computed or booked for it, and it is filled up with
    the pad token (without one, the end token, else 0). Without an end token, rows ended by other criteria continue
    until all have ended, as in Hugging Face. `use_cache=False` runs the whole text for each token.

    Args:
        inputs: [B, S] prompts, padded on the left; also as `input_ids`.
        generation_config: Defaults for all other arguments; without it the model's own.
        streamer: Gets the prompt, then every new token.
        generator: Draws from this instead of torch's global generator.
        kwargs: Hugging Face's other arguments.

    Returns:
        Prompts and new tokens [B, S + N], or with `return_dict_in_generate` an output object, without a cache (it would
        lack the rows that have left).
    """
    own = {"inputs": inputs, "streamer": streamer, "generator": generator}
    check_arguments(generation_config, {**kwargs, **own})
    generation_config = deepcopy(generation_config)
    _take_stop_strings(generation_config, kwargs)
    call = _prepared(model, inputs, generation_config, streamer, kwargs)
    config: GenerationConfig = call["generation_config"]
    causal = model.method.semantics == "bench" or model.method.paper_class == "C0"
    if not config.use_cache and not causal:
        raise UsageError(
            f"Without a cache a text is read anew for each token, and what {model.spec} decided for a token before "
            f"may change as the text goes on, got use_cache=False. Leave use_cache out, or take the bench semantics."
        )
    if (mode := config.get_generation_mode()) not in _WRITES:
        raise UsageError(
            f"generate() writes greedily or by sampling, got {mode.value} from the model's "
            "generation_config. Set model.generation_config = GenerationConfig()."
        )
    writer = _Writer(model, generator=generator, streamer=streamer, **call)
    return writer.write()


def _take_stop_strings(config: GenerationConfig | None, kwargs: dict[str, Any]) -> None:
    """Turn stop strings into a stopping criterion, since Hugging Face passes no tokenizer to a custom loop."""
    tokenizer = kwargs.pop("tokenizer", None)
    strings = kwargs.pop("stop_strings", None)
    if config is not None:
        strings, config.stop_strings = strings or config.stop_strings, None
    if strings is None:
        return
    if tokenizer is None:
        raise UsageError(f"Stop strings need the tokenizer, got stop_strings={strings!r}. Pass tokenizer=... too.")
    criterion = StopStringCriteria(tokenizer=tokenizer, stop_strings=strings)
    kwargs["stopping_criteria"] = StoppingCriteriaList([*(kwargs.get("stopping_criteria") or ()), criterion])


def _prepared(
    model: ForwardModel, inputs: Tensor | None, config: GenerationConfig | None, streamer: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments as prepared by Hugging Face, which is asked to pass them to a custom loop that captures them."""
    call: dict[str, Any] = {}

    def capture(_: Any, input_ids: Tensor, **given: Any) -> None:
        wanted = ("logits_processor", "stopping_criteria", "generation_config", "attention_mask")
        call.update(input_ids=input_ids, **{name: given.get(name) for name in wanted})

    backbone: Any = model.backbone_model  # its static type lacks `generate`
    try:
        backbone.generate(inputs, generation_config=config, streamer=streamer, custom_generate=capture, **kwargs)
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # nothing ran yet, so arguments are at fault
        raise UsageError(f"generate() got arguments that do not go together or do not exist: {error}") from error
    return call


class _Writer:
    """One call of `generate`: the loop over new tokens.

    Logits processors and stopping criteria see all rows in their places, including finished ones, as in Hugging Face's
    loop (some keep state by row). The model sees only the unfinished rows.
    """

    def __init__(
        self,
        model: ForwardModel,
        *,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        generator: torch.Generator | None,
        streamer: Any,
    ) -> None:
        check_prompts(model, input_ids, attention_mask)
        self.model, self.config, self.generator, self.streamer = model, generation_config, generator, streamer
        self.process, self.is_done = logits_processor, stopping_criteria
        device = next(model.parameters()).device
        self.sequences, self.prompt = input_ids.to(device), input_ids.shape[1]
        self.mask = None if attention_mask is None else attention_mask.to(device)
        # Without an end token, Hugging Face's loop continues every row until all have ended.
        self.ends = any(hasattr(one, "eos_token_id") for one in stopping_criteria)
        self.finished = torch.zeros(len(input_ids), dtype=torch.bool, device=device)
        self.left = torch.zeros_like(self.finished)  # rows that have left the batch
        self.cut = torch.zeros_like(self.finished)  # rows ended only by the context
        self.scores: list[Tensor] = []
        self.logits: list[Tensor] = []

    def write(self) -> Tensor | GenerateDecoderOnlyOutput:
        """Generate all tokens of all rows."""
        length = self.sequences.shape[1]
        lengths = torch.full_like(self.sequences[:, 0], length) if self.mask is None else self.mask.sum(dim=1)
        rows = torch.arange(len(self.sequences), device=self.sequences.device)
        output = self.model(self.sequences, self.mask, use_cache=self.config.use_cache, logits_to_keep=1)
        while True:
            tokens = self._choose(rows, output.logits[:, -1])
            self.sequences = torch.cat([self.sequences, tokens[:, None]], dim=1)
            new = self.sequences.shape[1] - length
            # Hugging Face's criteria read the scores if they are kept.
            self.finished |= self.is_done(self.sequences, tuple(self.scores) or None)
            full = lengths + new >= self.model.backbone.context_length
            self.cut |= full & ~self.finished
            self.finished |= full
            self.left = self.finished if self.ends else full
            if self.streamer is not None:
                self.streamer.put(tokens.cpu())
            if self.finished.all():
                break
            going = ~self.left[rows]
            if not going.all() and self.config.use_cache:
                output.past_key_values.select_rows(going.nonzero()[:, 0])
            rows = rows[going]
            output = self._next(rows, tokens, output.past_key_values)
        if self.streamer is not None:
            self.streamer.end()
        if cut_rows := int(self.cut.sum()):
            warnings.warn(
                f"{ENDS_WITH_CONTEXT} of {self.model.backbone.context_length} tokens at the latest: "
                f"{cut_rows} of {len(self.cut)} end there, before they are as long as was asked for. Give shorter "
                f"prompts, or a smaller max_new_tokens.",
                stacklevel=4,
            )
        if not self.config.return_dict_in_generate:
            return self.sequences
        parts: dict[str, Any] = {"scores": tuple(self.scores) or None, "logits": tuple(self.logits) or None}
        return GenerateDecoderOnlyOutput(sequences=cast(LongTensor, self.sequences), **parts)

    def _next(self, rows: Tensor, tokens: Tensor, cache: Any) -> CausalLMOutputWithPast:
        """The model's output after the newest tokens [B], for the unfinished rows [R]."""
        if self.config.use_cache:
            return self.model(tokens[rows, None], past_key_values=cache, use_cache=True, logits_to_keep=1)
        new = self.sequences.shape[1] - self.prompt
        mask = None if self.mask is None else functional.pad(self.mask[rows], (0, new), value=1)
        written = torch.zeros_like(self.sequences[rows], dtype=torch.bool)
        written[:, self.prompt :] = True
        return self.model(self.sequences[rows], mask, continuation_mask=written, logits_to_keep=1)

    def _choose(self, rows: Tensor, logits: Tensor) -> Tensor:
        """The next token [B] from the logits [R, V] of unfinished rows [R]; padding for the others."""
        everywhere = logits.new_zeros(len(self.sequences), logits.shape[-1], dtype=torch.float32)
        everywhere[rows] = logits.float()
        kept = self.config.return_dict_in_generate
        if kept and self.config.output_logits:
            self.logits.append(everywhere.clone())
        scores = self.process(self.sequences, everywhere)
        if kept and self.config.output_scores:
            self.scores.append(scores)
        if self.config.do_sample:
            tokens = torch.multinomial(scores.softmax(dim=-1), 1, generator=self.generator)[:, 0]
        else:
            tokens = scores.argmax(dim=-1)
        return tokens.masked_fill(self.left, self._padding())

    def _padding(self) -> int:
        ends = self.config.eos_token_id
        end = ends[0] if isinstance(ends, list) and ends else ends
        found = end if self.config.pad_token_id is None else self.config.pad_token_id
        return int(found) if isinstance(found, int) else 0
