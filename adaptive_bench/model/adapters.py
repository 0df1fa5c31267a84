"""Trains LoRA adapters through peft: small maps beside a backbone's linear maps, whose weights stay.

A run's adapters exist only in training. A saved model keeps them in peft's own layout beside the name of its backbone.
Loading merges them, so that the engine runs and counts the linear maps of the dense model. A user's own adapters run
beside the maps, and are counted, until their model is saved; the saved copy has them merged.
"""

from __future__ import annotations

import importlib
import importlib.util
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.recipe import LoraRecipe

_WEIGHTS = "adapter_model.safetensors"  # the name peft looks for


def check_installed() -> None:
    """Refuse to go on without peft."""
    if importlib.util.find_spec("peft") is None:
        raise EnvironmentProblem(
            "Training with train.lora needs the package peft, which is not installed. Install it with "
            "`pip install 'adaptive-bench[lora]'`, or leave train.lora out."
        )


def check_targets(backbone: PreTrainedModel, lora: LoraRecipe) -> None:
    """Refuse adapters beside maps that a model does not have, since peft would silently ignore them."""
    # A target is the last part of a module's name, such as `q_proj`.
    names = {name.rpartition(".")[2] for name, _ in backbone.named_modules()}
    if missing := sorted(set(lora.targets) - names):
        raise UsageError(
            f"train.lora.targets are linear maps of the model, got {', '.join(missing)}, which "
            f"{type(backbone).__name__} does not have. Name others: train.lora.targets="
            f"[{', '.join(sorted(set(lora.targets) & names))}]."
        )


def adapter_parameters(backbone: PreTrainedModel, lora: LoraRecipe) -> int:
    """The number of parameters of a recipe's adapters: a map from n to m values gets rank * (n + m)."""
    maps = (module for name, module in backbone.named_modules() if name.rpartition(".")[2] in lora.targets)
    return sum(lora.rank * sum(each.weight.shape) for each in maps)


class Adapters:
    """New adapters on a backbone, whose weights are frozen. Initial values come from torch's global generator."""

    def __init__(self, backbone: PreTrainedModel, lora: LoraRecipe) -> None:
        check_installed()
        check_targets(backbone, lora)
        peft: Any = importlib.import_module("peft")
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=sorted(lora.targets),
        )
        self._peft = peft
        self._model = peft.get_peft_model(backbone, config)

    def save(self, folder: Path) -> None:
        """Write the adapters into a new folder, in peft's layout."""
        folder.mkdir(parents=True)
        self._model.peft_config["default"].save_pretrained(folder)
        tensors = self._peft.get_peft_model_state_dict(self._model, save_embedding_layers=False)
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / _WEIGHTS)

    def merge(self) -> None:
        """Add the adapters to the backbone's weights and remove them."""
        self._model.merge_and_unload()


def without_adapters(backbone: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model with its adapters merged, or the model itself if it has none. Tied embeddings are untied in
    the copy if the head, the embedding or each of them has its own adapters.
    """
    if not any(hasattr(module, "base_layer") or hasattr(module, "original_module") for module in backbone.modules()):
        return backbone
    for name, module in backbone.named_modules():
        if hasattr(module, "original_module"):
            raise UsageError(
                f"A model is saved with its adapters merged, but peft trains a copy or rows of {name} (modules_to_save "
                f"or trainable_token_indices). Call merge_and_unload() of the peft model first."
            )
    try:
        copy = deepcopy(backbone)
    except RuntimeError as error:  # torch cannot deepcopy a tensor computed from another
        raise UsageError(
            f"A model is saved with its adapters merged in a copy, but these cannot be copied: "
            f"{message_of(error)[:60]}. Train without ensure_weight_tying, or save adapters alone with peft."
        ) from error
    # A list, since replacing modules changes what is iterated over.
    for name, module in list(copy.named_modules()):
        if hasattr(module, "base_layer"):
            wrapper: Any = module
            # Before merging, which would otherwise change the tied weights of the other map as well.
            _untie(copy, wrapper.get_base_layer())
            wrapper.merge()
            copy.set_submodule(name, wrapper.get_base_layer())
    return copy


def _untie(backbone: PreTrainedModel, layer: Any) -> None:
    """Give a layer its own copy of the weights if it shares them with another one (head and embedding)."""
    others = (part for part in backbone.modules() if part is not layer and not hasattr(part, "base_layer"))
    if any(getattr(other, "weight", None) is layer.weight for other in others):
        layer.weight = nn.Parameter(layer.weight.detach().clone())
        backbone.config.tie_word_embeddings = False


def merged(backbone: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The backbone with the adapters of a folder added to its weights."""
    check_installed()
    peft: Any = importlib.import_module("peft")
    found: PreTrainedModel = peft.PeftModel.from_pretrained(backbone, str(folder)).merge_and_unload()
    found.name_or_path = ""  # the merged weights are not stored on disk
    return found
