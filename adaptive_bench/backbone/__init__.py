"""Adapter over Hugging Face decoder families: finds their norms and branches, and counts what they cost."""

from adaptive_bench.backbone.adapter import BRANCHES, Backbone, Branch, LayerCosts, Site, described, every_branch
from adaptive_bench.backbone.family import find_family
from adaptive_bench.backbone.step import Tables, Turn
from adaptive_bench.backbone.weights import plain_parts

__all__ = [
    "BRANCHES",
    "Backbone",
    "Branch",
    "LayerCosts",
    "Site",
    "Tables",
    "Turn",
    "described",
    "every_branch",
    "find_family",
    "plain_parts",
]
