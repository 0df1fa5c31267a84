"""Beam search: Hugging Face's loop over beams, an adaptive model under it.

Their loop chooses tokens and says which beam goes on from which; the cache goes along row by row. A row of it holds
the decisions of its own text (keys, values, whatever the method remembers), so a beam has what the method would have
decided had its text been written alone. The prompt of a text is read once for all its beams.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig
from transformers.generation.utils import GenerateBeamDecoderOnlyOutput
from transformers.modeling_outputs import CausalLMOutputWithPast

from adaptive_bench.engine.kv_cache import AdaptiveCache
from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import check_prompts


def search_beams(
    model: ForwardModel, config: GenerationConfig, inputs: Tensor | None, **arguments: Any
) -> Tensor | GenerateBeamDecoderOnlyOutput:
    """The best sequences [B * num_return_sequences, S + N], or Hugging Face's output with their scores.

    Args:
        config: What Hugging Face made of the arguments; `max_length` is known.
        inputs, arguments: As `generate` was given them.

    Raises:
        UsageError: Decisions depend on the other rows, a prompt cannot be continued, or it leaves too little room.
    """
    if model.method.semantics == "paper" and model.method.paper_class == "C2":
        raise UsageError(
            f"The beams of a text are rows of one batch, but the decisions of {model.spec} depend on the other "
            f"sequences of a batch, got num_beams={config.num_beams}. Leave num_beams out, or take the bench semantics."
        )
    under: Any = _UnderBeams(model, config)  # to its type checker only a whole model of theirs can generate
    found: Tensor | GenerateBeamDecoderOnlyOutput = under.generate(inputs, **arguments)
    return found


class _UnderBeams(GenerationMixin):
    """What Hugging Face's `generate` sees of a model whose every row is a beam."""

    main_input_name = "input_ids"
    _is_stateful = False

    def __init__(self, model: ForwardModel, config: GenerationConfig) -> None:
        self._model, self._beams, self._max_length = model, config.num_beams, config.max_length
        self._prompt: int | None = None  # its length, known once it was read
        self.config: PretrainedConfig = model.backbone_model.config
        self.generation_config = model.backbone_model.generation_config
        self.device = model.backbone_model.device
        self.dtype = model.backbone_model.dtype

    def __call__(self, **arguments: Any) -> CausalLMOutputWithPast:
        """One step of all beams."""
        return self.forward(**arguments)

    def prepare_inputs_for_generation(  # type: ignore[override] # the rest of theirs is in the keywords
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        **_: Any,
    ) -> dict[str, Any]:
        """Arguments of the next step: whole texts, or the newest tokens where our cache holds the others."""
        newest = input_ids[:, -1:] if isinstance(past_key_values, AdaptiveCache) else input_ids
        given = {"attention_mask": attention_mask, "past_key_values": past_key_values, "use_cache": use_cache}
        return {"input_ids": newest, **given}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits [B * beams, 1, V] after whole texts, or after one more token of each where the cache is ours."""
        output: Any
        if isinstance(past_key_values, AdaptiveCache):
            output = self._model(input_ids, past_key_values=past_key_values, use_cache=True, logits_to_keep=1)
            return output
        if self._prompt is None:
            self._check(input_ids, attention_mask)
            self._prompt = input_ids.shape[1]
        if not use_cache:
            written = torch.arange(input_ids.shape[1], device=input_ids.device) >= self._prompt
            written = written.expand_as(input_ids)
            output = self._model(input_ids, attention_mask, continuation_mask=written, logits_to_keep=1)
            return output
        once = None if attention_mask is None else attention_mask[:: self._beams]
        output = self._model(input_ids[:: self._beams], once, use_cache=True, logits_to_keep=1)
        rows = torch.arange(len(input_ids), device=input_ids.device) // self._beams
        output.past_key_values.select_rows(rows)
        output.logits = output.logits[rows]
        return output

    def _check(self, input_ids: Tensor, attention_mask: Tensor | None) -> None:
        """Refuse prompts [B * beams, S] that cannot be continued so far."""
        check_prompts(self._model, input_ids, attention_mask)
        longest = input_ids.shape[1] if attention_mask is None else int(attention_mask.sum(dim=1).max())
        needed, context = longest + self._max_length - input_ids.shape[1], self._model.backbone.context_length
        if needed > context:
            raise UsageError(
                f"With beams, prompt and new tokens must fit into the context of {context} tokens, got {needed}. Set a "
                f"smaller max_new_tokens."
            )
