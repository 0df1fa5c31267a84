"""An adaptive model in fewer bits, for evaluation."""

from __future__ import annotations

from adaptive_bench.model.adaptive_model import AdaptiveModel
from adaptive_bench.validation import Quantization


def quantize(model: AdaptiveModel, how: Quantization) -> AdaptiveModel:
    """Quantize the weights of all layers in place; `none` leaves the model as it is.

    Head, embeddings, norms and all that the method adds keep their type. The ledger goes on counting what the maps
    take: the same MACs, fewer bytes. What was calibrated is forgotten, for it belongs to the weights before.

    Args:
        model: On the device it will run on.
        how: See `adaptive_bench.backbone.quantization`.

    Returns:
        The model.

    Raises:
        UsageError: The model has adapters or is quantized already.
        EnvironmentProblem: The library is not installed.
    """
    if how != "none":
        model.backbone.quantize(how)
        model.forget_calibration()
    return model
