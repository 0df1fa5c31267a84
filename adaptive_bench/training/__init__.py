"""Training: encoding, one data order for every method, the loop, checkpoints and exact resume."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptive_bench.training.encoding import calibration_batches, encode_examples
    from adaptive_bench.training.loop import FirstSteps, first_steps, train
    from adaptive_bench.training.order import DataOrder, data_order
    from adaptive_bench.training.target import Target, price

__all__ = [
    "DataOrder",
    "FirstSteps",
    "Target",
    "calibration_batches",
    "data_order",
    "encode_examples",
    "first_steps",
    "price",
    "train",
]
# Loaded when first asked for: the costs of a step are counted without what the loop needs.
_HOMES = {
    "DataOrder": "order",
    "FirstSteps": "loop",
    "Target": "target",
    "calibration_batches": "encoding",
    "data_order": "order",
    "encode_examples": "encoding",
    "first_steps": "loop",
    "price": "target",
    "train": "loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
