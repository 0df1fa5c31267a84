"""adaptive-bench: which adaptive-compute method keeps the most quality at the same saved compute, for real?"""

__version__ = "0.1.0"
