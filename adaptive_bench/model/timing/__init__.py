"""Measured time: a method over its dial against the plain Hugging Face model, taken in turns in one process."""

from adaptive_bench.model.timing.clock import Quantiles, in_turns
from adaptive_bench.model.timing.hardware import describe_device, environment
from adaptive_bench.model.timing.phases import Drive, decode_in_turns, drive_adaptive, drive_plain, prefill_in_turns
from adaptive_bench.model.timing.points import TimedPoint, Timing, time_model

__all__ = [
    "Drive",
    "Quantiles",
    "TimedPoint",
    "Timing",
    "decode_in_turns",
    "describe_device",
    "drive_adaptive",
    "drive_plain",
    "environment",
    "in_turns",
    "prefill_in_turns",
    "time_model",
]
