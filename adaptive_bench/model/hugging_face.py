"""The face an adaptive model shows to libraries that expect a Hugging Face model.

`transformers.pipeline`, lm-eval's `HFLM`, `accelerate` and notebooks look names up on the model they are given. Those
names are here, each answered by the backbone, and `generate` with Hugging Face's arguments.
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

# Where `pipeline` looks the class name up; without it every pipeline complains that the model is not supported.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["adaptive_bench"] = "AdaptiveModel"

_NOT_COMPILED = (
    "torch.compile leaves an adaptive model as it is: which tokens run, and so every shape, differs from call to call. "
    "On a CUDA device `StaticSteps` records decode steps instead."
)


def _of_backbone(name: str) -> Callable[..., Any]:
    """A method that is the backbone's of that name."""

    def ask(self: HuggingFaceModel, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.backbone_model, name)(*args, **kwargs)

    return ask


class HuggingFaceModel(ForwardModel):
    """Attributes and methods of a Hugging Face model, as far as other libraries ask for them.

    Attributes:
        name_or_path: Where the model, and its tokenizer, can be loaded from.
    """

    main_input_name = "input_ids"
    accepts_loss_kwargs = True  # `Trainer` tells how many labels all micro-batches of a step have,
    loss_type = "ForCausalLM"  # and by this that a row's first one is none of them
    _keys_to_ignore_on_save = None  # `Trainer` asks for it
    input_modalities = ("text",)
    output_modalities = ("text",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name_or_path: str = self.backbone_model.name_or_path or ""
        self.register_state_dict_post_hook(_leave_shared_out)
        self.register_load_state_dict_pre_hook(_put_shared_back)

    def __setattr__(self, name: str, value: Any) -> None:
        """Python takes any attribute; one that is almost the dial or the saving would leave both as they are."""
        if not name.startswith("_") and not hasattr(type(self), name):
            for meant in ("saving", "dial", "executor"):
                if sorted(name) == sorted(meant) or difflib.SequenceMatcher(None, name, meant).ratio() > 0.8:
                    raise UsageError(f"A model has no attribute {name!r} to be set. Did you mean {meant!r}?")
        super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass; within `torch.compile` the same, uncompiled, with a warning."""
        if torch.compiler.is_compiling():
            return _uncompiled(super().__call__, args, kwargs)
        return super().__call__(*args, **kwargs)

    def compile(self, *_: Any, **__: Any) -> None:
        """As `torch.compile`: nothing is compiled, with a warning."""
        warnings.warn(_NOT_COMPILED, stacklevel=2)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.backbone_model.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the backbone's weights."""
        return self.backbone_model.dtype

    @property
    def config(self) -> PretrainedConfig:
        """The backbone's config; method and parameters are in `spec`."""
        return self.backbone_model.config

    @property
    def generation_config(self) -> GenerationConfig:
        """Defaults of `generate`; the backbone's."""
        return self.backbone_model.generation_config

    @generation_config.setter
    def generation_config(self, value: GenerationConfig) -> None:
        self.backbone_model.generation_config = value

    def can_generate(self) -> bool:
        """Always."""
        return True

    def _supports_logits_to_keep(self) -> NoReturn:
        """What another model's `generate` asks of its `assistant_model`, and nobody else."""
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
        """What `Trainer` calls for `gradient_checkpointing=True`; there is one kind: every branch, not reentrant."""
        given = activation_checkpointing_kwargs or {}
        if not isinstance(given, Mapping) or given.get("use_reentrant") or every_n_layers != 1 or offload:
            raise UsageError(
                f"Gradient checkpointing of an adaptive model runs every branch again, got use_reentrant, "
                f"every_n_layers={every_n_layers} or offload={offload}. Leave out gradient_checkpointing_kwargs."
            )
        self.gradient_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Mapping[str, Any] | None = None) -> None:
        """The same under its older name."""
        self.activation_checkpointing_enable(gradient_checkpointing_kwargs)

    def gradient_checkpointing_disable(self) -> None:
        """Keep what branches hold again."""
        self.gradient_checkpointing = False

    tie_weights = _of_backbone("tie_weights")
    get_input_embeddings = _of_backbone("get_input_embeddings")
    get_output_embeddings = _of_backbone("get_output_embeddings")
    add_model_tags = _of_backbone("add_model_tags")
    resize_token_embeddings = _of_backbone("resize_token_embeddings")  # what was calibrated is of no use any more
    enable_input_require_grads = _of_backbone("enable_input_require_grads")  # for adapters with checkpointing
    prepare_inputs_for_generation = _of_backbone("prepare_inputs_for_generation")  # peft looks it up

    def base_model(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: trainers that compute a loss from the backbone's states call it (TRL's)."""
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
    """The sentence that refuses what no method can be put on."""
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
    """Names of parameters that are another one too (tied embeddings), with the first name of each."""
    first: dict[int, str] = {}
    names = [
        (name, first.setdefault(id(value), name)) for name, value in model.named_parameters(remove_duplicate=False)
    ]
    return {name: known for name, known in names if name != known}


def _leave_shared_out(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """A parameter of two names is in the state once: safetensors holds nothing twice."""
    for name in _shared(model):
        state.pop(prefix + name, None)


def _put_shared_back(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A parameter of two names is read from either."""
    for name, known in _shared(model).items():
        for here, there in ((name, known), (known, name)):
            if prefix + here not in state and prefix + there in state:
                state[prefix + here] = state[prefix + there]
