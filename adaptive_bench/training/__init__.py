"""Training: encoding, one data order for every method, the loop, checkpoints and exact resume."""

from adaptive_bench.training.encoding import calibration_batches, encode_examples
from adaptive_bench.training.loop import first_steps, train
from adaptive_bench.training.order import DataOrder, data_order
from adaptive_bench.training.target import Target, price

__all__ = [
    "DataOrder",
    "Target",
    "calibration_batches",
    "data_order",
    "encode_examples",
    "first_steps",
    "price",
    "train",
]
