"""Training: encoding, one data order for every method, the loop, and checkpoints from which it resumes exactly."""

from typing import TYPE_CHECKING

from adaptive_bench.startup import loader

if TYPE_CHECKING:
    from adaptive_bench.training.encoding import calibration_batches, encode_examples
    from adaptive_bench.training.loop import train
    from adaptive_bench.training.target import Target, price

__all__ = ["Target", "calibration_batches", "encode_examples", "price", "train"]
# Loaded at first use, so that counting the cost of a step does not import what the loop needs.
_HOMES = {
    "Target": "adaptive_bench.training.target",
    "calibration_batches": "adaptive_bench.training.encoding",
    "encode_examples": "adaptive_bench.training.encoding",
    "price": "adaptive_bench.training.target",
    "train": "adaptive_bench.training.loop",
}
__getattr__ = loader(__name__, _HOMES)
