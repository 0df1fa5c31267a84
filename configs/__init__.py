"""Presets of `adaptive-bench run`."""
