"""The model: `AdaptiveModel`, with its forward pass, generation, calibration, and files on disk."""

from adaptive_bench.model.adaptive_model import AdaptiveModel

__all__ = ["AdaptiveModel"]
