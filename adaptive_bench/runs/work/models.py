"""The models that training starts from."""

from __future__ import annotations

from transformers import PreTrainedModel

from adaptive_bench.config import RunConfig
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.pretrained import Pretrained
from adaptive_bench.runs.planning.backbones import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.planning.cells import Cell


def build_model(cell: Cell, config: RunConfig) -> AdaptiveModel:
    """The model of a cell before it is trained, on its device."""
    backbone = backbone_of(cell, config).load_model() if cell.base is None else _trained_backbone(cell.base)
    return AdaptiveModel.build(backbone, cell.spec, seed=cell.seed).to(find_device(config.device))


def backbone_of(cell: Cell, config: RunConfig) -> BackboneSource:
    """The pretrained model, as it was when the run was planned."""
    return planned_backbone(config.model, cell.content["backbone"])


def pretrained_of(cell: Cell, config: RunConfig) -> Pretrained | None:
    """What adapters are kept beside; `None` where the whole model is trained."""
    if config.train.lora is None or cell.base is not None:
        return None
    source = backbone_of(cell, config)
    return Pretrained.at(source.location, source.revision)


def _trained_backbone(cell: Cell) -> PreTrainedModel:
    return AdaptiveModel.from_pretrained(cell.checkpoint, calibration=None).backbone_model
