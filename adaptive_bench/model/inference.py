"""Running a model without gradients."""

from __future__ import annotations

import torch

from adaptive_bench import registry
from adaptive_bench.model.forward import ForwardModel


def inference(model: ForwardModel) -> torch.inference_mode | torch.no_grad:
    """The context to read texts in: torch's inference mode, or for a plugin's method the absence of gradients alone.

    Tensors that are made in inference mode do not count how often they are written into, and so nobody would notice a
    method that writes into what it is shown (`method.answers.check_untouched`).
    """
    name = model.spec.name
    is_ours = name in registry.names("methods") and not registry.is_foreign("methods", name)
    return torch.inference_mode() if is_ours else torch.no_grad()
