"""Adapter over Hugging Face decoder families: where their norms and branches are, and what they cost."""

from adaptive_bench.backbone.adapter import ATTENTION, FAMILIES, Backbone, LayerCosts
from adaptive_bench.backbone.site import Branch, Site
from adaptive_bench.backbone.step import Turn

__all__ = ["ATTENTION", "FAMILIES", "Backbone", "Branch", "LayerCosts", "Site", "Turn"]
