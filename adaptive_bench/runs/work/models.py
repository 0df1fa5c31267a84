"""The models that training starts from."""

from __future__ import annotations

from transformers import PreTrainedModel

from adaptive_bench.config import RunConfig
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.hub_models import Pretrained
from adaptive_bench.runs.planning.backbones import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.store.checkpoints import sparing


def build_model(training: TrainingRun, config: RunConfig) -> AdaptiveModel:
    """The model of a training before it is trained, on its device."""
    backbone = backbone_of(training, config).load_model() if training.base is None else _trained_backbone(training.base)
    model = AdaptiveModel.build(backbone, training.spec, seed=training.seed, **sparing(training.content))
    return model.to(find_device(config.device))


def backbone_of(training: TrainingRun, config: RunConfig) -> BackboneSource:
    """The pretrained model, as it was when the run was planned."""
    return planned_backbone(config.model, training.content["backbone"])


def pretrained_of(training: TrainingRun, config: RunConfig) -> Pretrained | None:
    """What adapters are kept beside; `None` where the whole model is trained."""
    if config.train.lora is None or training.base is not None:
        return None
    source = backbone_of(training, config)
    return Pretrained.at(source.location, source.revision)


def _trained_backbone(training: TrainingRun) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(training.checkpoint, calibration=None).backbone_model
