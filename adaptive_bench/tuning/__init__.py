"""Tuning: studies that look for the best parameters of methods on validation documents."""

from adaptive_bench.tuning.result import StudyResult, find_result, tuned
from adaptive_bench.tuning.search import Objective
from adaptive_bench.tuning.tune import tune

__all__ = ["Objective", "StudyResult", "find_result", "tune", "tuned"]
