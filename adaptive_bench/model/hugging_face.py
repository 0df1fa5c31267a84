"""The face an adaptive model shows to libraries that expect a Hugging Face model.

`transformers.pipeline`, lm-eval's `HFLM`, `accelerate` and notebooks look names up on the model they are given. Those
names are here, each answered by the backbone, and `generate` with Hugging Face's arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.hugging_face_generation import generate

# Where `pipeline` looks the class name up; without it every pipeline complains that the model is not supported.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["adaptive_bench"] = "AdaptiveModel"


class HuggingFaceModel(ForwardModel):
    """Attributes and methods of a Hugging Face model, as far as other libraries ask for them.

    Attributes:
        name_or_path: Where the model, and its tokenizer, can be loaded from.
    """

    main_input_name = "input_ids"
    input_modalities = ("text",)
    output_modalities = ("text",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name_or_path: str = self.backbone_model.name_or_path or ""

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

    def tie_weights(self) -> None:
        """Tie input and output embeddings where the backbone's config says so."""
        self.backbone_model.tie_weights()

    def get_input_embeddings(self) -> nn.Module:
        """The backbone's."""
        return self.backbone_model.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        """The backbone's."""
        return self.backbone_model.get_output_embeddings()

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Parameters of the backbone and of the method."""
        added = [each for each in self.method.parameters() if each.requires_grad or not only_trainable]
        return self.backbone_model.num_parameters(only_trainable, exclude_embeddings) + sum(e.numel() for e in added)

    generate = generate
