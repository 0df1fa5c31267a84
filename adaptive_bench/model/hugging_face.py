"""Gives an adaptive model the interface of a Hugging Face model, for libraries that expect one.

`transformers.pipeline`, lm-eval's `HFLM`, `accelerate` and notebooks read certain attributes of a model, most of them
the backbone's. For `generate`, transformers turns arguments into logits processors and stopping criteria, and hands
these to our loop instead of running its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import torch
from torch import LongTensor, Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.stopping_criteria import StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adaptive_bench.errors import UsageError
from adaptive_bench.model.arguments import check_arguments
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import Batch, Text, checked_prompts, texts_of

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
    until all have ended, as in Hugging Face. `use_cache=False` is no error, but a cache is used all the same.

    Args:
        inputs: [B, S] prompts, padded on the left; also as `input_ids`.
        streamer: Gets the prompt, then every new token.
        generator: Draws from this instead of torch's global generator.

    Returns:
        Prompts and new tokens [B, S + N], or with `return_dict_in_generate` an output object without a cache.
    """
    own = {"inputs": inputs, "streamer": streamer, "generator": generator}
    check_arguments(generation_config, {**kwargs, **own})
    generation_config = deepcopy(generation_config)  # changed below, and the caller's own
    _take_stop_strings(generation_config, kwargs)
    call = _prepared(model, inputs, generation_config, streamer, kwargs)
    call["input_ids"] = call["input_ids"].to(model.backbone_model.device)
    config: GenerationConfig = call["generation_config"]
    if (mode := config.get_generation_mode()) not in _WRITES:
        raise UsageError(
            f"generate() writes greedily or by sampling, got {mode.value} from the model's "
            "generation_config. Set model.generation_config = GenerationConfig()."
        )
    prompts = checked_prompts(model, call["input_ids"], call.pop("attention_mask"))
    return _Writer(generator=generator, streamer=streamer, **call).write(model, prompts)


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
        # The streamer goes along, as this call also gives it the prompt.
        backbone.generate(inputs, generation_config=config, streamer=streamer, custom_generate=capture, **kwargs)
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # nothing ran yet, so arguments are at fault
        raise UsageError(f"generate() got arguments that do not go together or do not exist: {error}") from error
    return call


@dataclass(eq=False)
class _Writer:
    """Our loop with Hugging Face's logits processors, stopping criteria and streamer. As in their loop, these see all
    rows in their places, finished ones too (some keep state by row); the model sees only the unfinished rows.
    """

    input_ids: Tensor
    logits_processor: Any
    stopping_criteria: Any
    generation_config: GenerationConfig
    generator: torch.Generator | None
    streamer: Any
    scores: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    on_host: list[bool] = field(default_factory=list)  # the values of `finished`

    def __post_init__(self) -> None:
        self.config, self.sequences = self.generation_config, self.input_ids
        # Without an end token, Hugging Face's loop continues every row until all have ended.
        self.ends = any(hasattr(one, "eos_token_id") for one in self.stopping_criteria)
        self.finished = torch.zeros(len(self.input_ids), dtype=torch.bool, device=self.input_ids.device)

    def write(self, model: ForwardModel, prompts: Sequence[Sequence[int]]) -> Tensor | GenerateDecoderOnlyOutput:
        """Generate all tokens of all rows."""
        context = model.backbone.context_length
        texts = texts_of(model, prompts, context, [0] * len(prompts))
        batch = Batch(model, self._choose, lambda text: self.ends and self.on_host[text.place])
        cut: set[int] = set()  # rows ended only by the context
        batch.begin(texts)
        while True:
            cut |= {text.place for text in texts if text.is_full and not self.on_host[text.place]}
            if all(self.on_host[text.place] for text in batch.texts):
                break
            batch.step()
        if self.streamer is not None:
            self.streamer.end()
        if cut:
            warnings.warn(
                f"{ENDS_WITH_CONTEXT} of {context} tokens at the latest: {len(cut)} of {len(texts)} end there, before "
                f"they are as long as was asked for. Give shorter prompts, or a smaller max_new_tokens.",
                stacklevel=4,  # the caller of `generate`, beyond this method, `generate` and `no_grad`
            )
        if not self.config.return_dict_in_generate:
            return self.sequences
        parts: dict[str, Any] = {"scores": tuple(self.scores) or None, "logits": tuple(self.logits) or None}
        return GenerateDecoderOnlyOutput(sequences=cast(LongTensor, self.sequences), **parts)

    def _choose(self, texts: Sequence[Text], logits: Tensor) -> Tensor:
        """The next tokens [R] of the unfinished rows, from their logits [R, V]."""
        rows = torch.tensor([text.place for text in texts], device=logits.device)
        # Rows that have left keep their places with logits of 0; what is chosen for them becomes padding.
        everywhere = logits.new_zeros(len(self.sequences), logits.shape[-1], dtype=torch.float32)
        everywhere[rows] = logits.float()
        kept = self.config.return_dict_in_generate
        if kept and self.config.output_logits:
            self.logits.append(everywhere.clone())
        scores = self.logits_processor(self.sequences, everywhere)
        if kept and self.config.output_scores:
            self.scores.append(scores)
        if self.config.do_sample:
            chosen = torch.multinomial(scores.softmax(dim=-1), 1, generator=self.generator)[:, 0]
        else:
            chosen = scores.argmax(dim=-1)
        tokens = torch.full_like(chosen, self._padding()).index_copy(0, rows, chosen[rows])
        self.sequences = torch.cat([self.sequences, tokens[:, None]], dim=1)
        # Hugging Face's criteria read the scores if they are kept.
        self.finished |= self.stopping_criteria(self.sequences, tuple(self.scores) or None)
        self.on_host = self.finished.tolist()
        if self.streamer is not None:
            self.streamer.put(tokens.cpu())
        return tokens[rows]

    def _padding(self) -> int:
        ends = self.config.eos_token_id
        end = ends[0] if isinstance(ends, list) and ends else ends
        found = end if self.config.pad_token_id is None else self.config.pad_token_id
        return int(found) if isinstance(found, int) else 0


# `pipeline` looks the class name up here; without this entry it warns that the model is not supported.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["adaptive_bench"] = "AdaptiveModel"


def _of_backbone(name: str) -> Callable[..., Any]:
    """A method that calls the backbone's method of the same name."""

    def ask(self: HuggingFaceModel, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.backbone_model, name)(*args, **kwargs)

    return ask


class HuggingFaceModel(ForwardModel):
    """Attributes and methods of a Hugging Face model, as far as other libraries use them."""

    main_input_name = "input_ids"
    accepts_loss_kwargs = True  # makes `Trainer` pass the number of labels in all micro-batches of a step
    loss_type = "ForCausalLM"  # makes `Trainer` leave the first label of each row out of that number
    _keys_to_ignore_on_save = None  # read by `Trainer`
    input_modalities = ("text",)
    output_modalities = ("text",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The folder or hub id from which the model and its tokenizer can be loaded.
        self.name_or_path: str = self.backbone_model.name_or_path or ""
        self.register_state_dict_post_hook(_leave_shared_out)
        self.register_load_state_dict_pre_hook(_put_shared_back)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.backbone_model.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the backbone's weights."""
        return self.backbone_model.dtype

    @property
    def config(self) -> PretrainedConfig:
        """The backbone's config; the method and its parameters are in `spec`."""
        return self.backbone_model.config

    @property
    def generation_config(self) -> GenerationConfig:
        """The backbone's defaults for `generate`."""
        return self.backbone_model.generation_config

    @generation_config.setter
    def generation_config(self, value: GenerationConfig) -> None:
        self.backbone_model.generation_config = value

    def _supports_logits_to_keep(self) -> NoReturn:
        """Refused: only another model's `generate` calls this, on its `assistant_model`."""
        raise UsageError(
            "An adaptive model is no assistant_model: assisted generation crops caches, which is impossible if layers "
            "hold different tokens. Let the model draft for itself (`adaptive-bench speculate`)."
        )

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether branches run again in the backward pass."""
        return self.gradient_checkpointing

    def activation_checkpointing_enable(
        self,
        activation_checkpointing_kwargs: Mapping[str, Any] | None = None,
        every_n_layers: int = 1,
        offload: bool = False,
    ) -> None:
        """Called by `Trainer` for `gradient_checkpointing=True`: recompute every branch, without reentrance."""
        given = activation_checkpointing_kwargs or {}
        if not isinstance(given, Mapping) or given.get("use_reentrant") or every_n_layers != 1 or offload:
            raise UsageError(
                f"Gradient checkpointing of an adaptive model runs every branch again, got use_reentrant, "
                f"every_n_layers={every_n_layers} or offload={offload}. Leave out gradient_checkpointing_kwargs."
            )
        self.gradient_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Mapping[str, Any] | None = None) -> None:
        """The older name of `activation_checkpointing_enable`."""
        self.activation_checkpointing_enable(gradient_checkpointing_kwargs)

    def gradient_checkpointing_disable(self) -> None:
        """Stop recomputing branches in the backward pass."""
        self.gradient_checkpointing = False

    can_generate = _of_backbone("can_generate")
    tie_weights = _of_backbone("tie_weights")
    get_input_embeddings = _of_backbone("get_input_embeddings")
    get_output_embeddings = _of_backbone("get_output_embeddings")
    add_model_tags = _of_backbone("add_model_tags")
    resize_token_embeddings = _of_backbone("resize_token_embeddings")  # the calibration then no longer applies
    enable_input_require_grads = _of_backbone("enable_input_require_grads")  # for adapters with checkpointing
    prepare_inputs_for_generation = _of_backbone("prepare_inputs_for_generation")  # peft looks it up

    def base_model(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: trainers that compute the loss from the backbone's states call this (TRL's)."""
        raise UsageError(
            "The loss of an adaptive model is computed by the model, with the method's own losses, but TRL's trainer "
            "computes its own from the backbone. Train with a subclass: class AdaptiveSFTTrainer(SFTTrainer): "
            "compute_loss = Trainer.compute_loss."
        )

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Parameters of the backbone and of the method."""
        added = [each for each in self.method.parameters() if each.requires_grad or not only_trainable]
        return self.backbone_model.num_parameters(only_trainable, exclude_embeddings) + sum(e.numel() for e in added)

    generate = generate


def _shared(model: nn.Module) -> dict[str, str]:
    """Second names of shared parameters (tied embeddings), with the first name of each."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: known for name, value in named if (known := first.setdefault(id(value), name)) != name}


def _leave_shared_out(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Keep a shared parameter in the state under its first name only, since safetensors refuses shared tensors."""
    for name in _shared(model):
        state.pop(prefix + name, None)


def _put_shared_back(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Read a shared parameter from whichever of its names is in the state."""
    for name, known in _shared(model).items():
        for here, there in ((name, known), (known, name)):
            if prefix + here not in state and prefix + there in state:
                state[prefix + here] = state[prefix + there]
