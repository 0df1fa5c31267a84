"""Gives an adaptive model the interface of a Hugging Face model, for libraries that expect one.

`transformers.pipeline`, lm-eval's `HFLM`, `accelerate` and notebooks read certain attributes of a model. They are
defined here, most of them forwarded to the backbone, together with `generate` with Hugging Face's arguments.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from transformers import GenerationConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adaptive_bench.errors import UsageError
from adaptive_bench.model.arguments import no_assistance
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.hugging_face_generation import generate

# `pipeline` looks the class name up here; without this entry it warns that the model is not supported.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["adaptive_bench"] = "AdaptiveModel"

_NOT_COMPILED = (
    "torch.compile leaves an adaptive model as it is: which tokens run, and so every shape, differs from call to call."
)


def _of_backbone(name: str) -> Callable[..., Any]:
    """A method that calls the backbone's method of the same name."""

    def ask(self: HuggingFaceModel, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.backbone_model, name)(*args, **kwargs)

    return ask


class HuggingFaceModel(ForwardModel):
    """Attributes and methods of a Hugging Face model, as far as other libraries use them.

    Attributes:
        name_or_path: Folder or hub id from which the model and its tokenizer can be loaded.
    """

    main_input_name = "input_ids"
    accepts_loss_kwargs = True  # makes `Trainer` pass the number of labels in all micro-batches of a step
    loss_type = "ForCausalLM"  # makes `Trainer` leave the first label of each row out of that number
    _keys_to_ignore_on_save = None  # read by `Trainer`
    input_modalities = ("text",)
    output_modalities = ("text",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name_or_path: str = self.backbone_model.name_or_path or ""
        self.register_state_dict_post_hook(_leave_shared_out)
        self.register_load_state_dict_pre_hook(_put_shared_back)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, but refuse misspellings of `saving`, `dial` or `executor`, which Python would accept."""
        if not name.startswith("_") and not hasattr(type(self), name):
            for meant in ("saving", "dial", "executor"):
                if sorted(name) == sorted(meant) or difflib.SequenceMatcher(None, name, meant).ratio() > 0.8:
                    raise UsageError(f"A model has no attribute {name!r} to be set. Did you mean {meant!r}?")
        super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass. Inside `torch.compile` it runs uncompiled, with a warning."""
        if torch.compiler.is_compiling():
            return _uncompiled(super().__call__, args, kwargs)
        return super().__call__(*args, **kwargs)

    def compile(self, *_: Any, **__: Any) -> None:
        """Compile nothing, with a warning, as under `torch.compile`."""
        warnings.warn(_NOT_COMPILED, stacklevel=2)

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

    def can_generate(self) -> bool:
        """Always true."""
        return True

    def _supports_logits_to_keep(self) -> NoReturn:
        """Refused: only another model's `generate` calls this, on its `assistant_model`."""
        raise no_assistance("it as assistant_model")

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
        """Called by `Trainer` for `gradient_checkpointing=True`; recomputes every branch, without reentrance."""
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


def why_no_backbone(given: Any) -> str:
    """The error message for an object on which no method can be put."""
    if isinstance(given, str | Path):
        step = f"Load it first: AdaptiveModel.build(find_backbone({str(given)!r}).load_model(), ...)"
    elif isinstance(given, HuggingFaceModel):
        step = "It has a method already; build another one on its model.backbone_model"
    elif hasattr(given, "get_base_model"):
        step = "Give the model inside, where the adapters are: AdaptiveModel.build(model.get_base_model(), ...)"
    else:
        step = "Load one with transformers.AutoModelForCausalLM.from_pretrained(folder)"
    shown = repr(given) if isinstance(given, str | Path) else type(given).__name__
    return f"A method is put on a loaded Hugging Face model, got {shown}. {step}."


@torch.compiler.disable(reason=_NOT_COMPILED)
def _uncompiled(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    warnings.warn(_NOT_COMPILED, stacklevel=2)
    return call(*args, **kwargs)


def _shared(model: nn.Module) -> dict[str, str]:
    """Second names of shared parameters (tied embeddings), with the first name of each."""
    first: dict[int, str] = {}
    names = [
        (name, first.setdefault(id(value), name)) for name, value in model.named_parameters(remove_duplicate=False)
    ]
    return {name: known for name, known in names if name != known}


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
