"""adaptive-bench: which adaptive-compute method keeps the most quality at the same saved compute, and is the saving real?"""

__version__ = "0.1.0"
