"""Adaptive-compute methods, one file each."""
