"""The model core: `AdaptiveModel`, what a method is, and how decisions are made and calibrated."""

from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.model.method import code_digest, starting_spec, training_spec

__all__ = ["AdaptiveModel", "code_digest", "starting_spec", "training_spec"]
