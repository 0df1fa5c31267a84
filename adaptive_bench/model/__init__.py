"""The model: `AdaptiveModel`, its forward pass, generation, calibration, and what is on disk of it."""

from adaptive_bench.model.adaptive_model import AdaptiveModel

__all__ = ["AdaptiveModel"]
