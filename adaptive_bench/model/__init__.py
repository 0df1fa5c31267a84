"""Runs, calibrates, saves and loads models with a method: `AdaptiveModel`."""

from adaptive_bench.model.adaptive_model import AdaptiveModel

__all__ = ["AdaptiveModel"]
