"""Everything a run will need, checked before any training: each cause is said once, with the way out."""

from adaptive_bench.runs.preflight.preflight import Preflight, preflight

__all__ = ["Preflight", "preflight"]
