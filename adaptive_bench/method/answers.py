"""Shape and type of what a method answers while a model runs: a tensor of another shape could broadcast in silence.

No value is read from the device, which would make every call wait for it; NaN shows in the loss and in the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptive_bench.errors import PluginFault
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.decisions import Decision


def check_decision(decision: object, hidden: Tensor, method: object) -> None:
    """Refuse what is no decision about hidden states [B, S, H].

    Raises:
        PluginFault: With what the method gave.
    """
    if not isinstance(decision, Decision):
        raise _fault(method, "decide", "a Decision", decision, "Return Decision(keep=...) or EXECUTE_ALL.")
    (rows, tokens, width), keep = hidden.shape, decision.keep
    if keep is not None and not (
        isinstance(keep, Tensor) and keep.dtype == torch.bool and keep.shape == (rows, tokens)
    ):
        wanted = f"a Decision whose keep is a boolean tensor of shape {(rows, tokens)} (rows, tokens)"
        raise _fault(method, "decide", wanted, keep, "Compare scores of shape [B, S] with a threshold.")
    for name in ("scale", "input_scale"):
        scale, shapes = getattr(decision, name), ((rows, tokens, 1), (rows, tokens, width))
        if scale is not None and not (
            isinstance(scale, Tensor) and scale.is_floating_point() and scale.shape in shapes
        ):
            wanted = f"a Decision whose {name} has floating-point numbers of the shape {shapes[0]} or {shapes[1]}"
            raise _fault(method, "decide", wanted, scale, "Give such a tensor, or None.")


def check_ahead(ahead: Sequence[Decision], sites: int, method: object) -> None:
    """Refuse answers of `Method.decide_ahead` that are not one for each of so many sites.

    Raises:
        PluginFault: With how many there are.
    """
    if len(ahead) != sites:
        wanted = f"None or {sites} decisions, one for each site in execution order"
        raise _fault(method, "decide_ahead", wanted, len(ahead), "Give EXECUTE_ALL where every token executes.")


def check_instead(output: object, tokens: int, width: int, method: object) -> None:
    """Refuse what is no output of `Decision.otherwise` for so many tokens.

    Raises:
        PluginFault: With what it gave.
    """
    if not (isinstance(output, Tensor) and output.shape == (tokens, width)):
        wanted = f"a Decision whose otherwise gives numbers of shape {(tokens, width)} (tokens asked for, width)"
        raise _fault(method, "decide", wanted, output, "Index states with the flat indices it is called with.")


def _fault(method: object, hook: str, wanted: str, got: object, step: str) -> PluginFault:
    name, place, file = in_plugin(type(method)).partition(" (")
    kind = f"{got.dtype} of shape {tuple(got.shape)}" if isinstance(got, Tensor) else type(got).__name__
    kind = str(got) if isinstance(got, int) and not isinstance(got, bool) else kind
    return PluginFault(f"{name}.{hook}{place}{file} must give {wanted}, got {kind}. {step}")
