"""What a method answers while a model runs, held to its kinds: decisions, what tokens get instead, losses.

No value is read from the device, which would make every call wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

import torch
from torch import Tensor

from adaptive_bench.errors import PluginFault, one_line
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.decisions import Decision
from adaptive_bench.method.site_view import SiteView


def check_decision(decision: object, hidden: Tensor, method: object, *, training: bool, closely: bool = False) -> None:
    """Refuse what is no decision about hidden states [B, S, H]; a tensor of another shape could broadcast in silence.

    Args:
        training: Whether choices may be soft.
        closely: Look at where tensors lie and at flags even where each row has one token: a step that writes is short,
            and a text was read before it.

    Raises:
        PluginFault: With what the method gave.
    """
    if not isinstance(decision, Decision):
        raise PluginFault(f"{_rule(method)}, got {type(decision).__name__}. Return Decision(keep=...) or EXECUTE_ALL.")
    rows, tokens, width = hidden.shape
    closely = closely or tokens > 1
    keep = decision.keep
    if keep is not None and not (
        isinstance(keep, Tensor)
        and keep.dtype == torch.bool
        and keep.shape == (rows, tokens)
        and (not closely or _lies_with(keep, hidden))
    ):
        raise PluginFault(
            f"{_rule(method)} whose keep is a boolean tensor of shape {(rows, tokens)} (rows, tokens) on "
            f"{hidden.device}, got {_kind(keep)}. Compare scores of shape [B, S] with a threshold."
        )
    for name in ("scale", "input_scale"):
        scale = getattr(decision, name)
        if scale is not None and not (
            isinstance(scale, Tensor)
            and scale.shape in ((rows, tokens, 1), (rows, tokens, width))
            and (not closely or (scale.is_floating_point() and _lies_with(scale, hidden)))
        ):
            raise PluginFault(
                f"{_rule(method)} whose {name} has floating-point numbers of the shape {(rows, tokens, 1)} or "
                f"{(rows, tokens, width)} on {hidden.device}, got {_kind(scale)}. Give such a tensor, or None."
            )
    instead = decision.otherwise
    if instead is not None and not callable(instead):
        raise PluginFault(
            f"{_rule(method)} whose otherwise is a function of flat indices of tokens, got {_kind(instead)}. Give "
            f"`lambda tokens: ...`, or None."
        )
    if closely and not (
        _is_flag(decision.soft) and _is_flag(decision.nobody) and (keep is not None or not decision.nobody)
    ):
        raise PluginFault(
            f"{_rule(method)} whose soft and nobody are True or False, nobody with a keep that is False everywhere, "
            f"got soft={one_line(repr(decision.soft), 60)}, nobody={one_line(repr(decision.nobody), 60)} and keep="
            f"{_kind(keep)}. Use Decision.skip_all where no token executes."
        )
    if decision.soft and not (training and decision.scale is not None):
        raise PluginFault(
            f"{_rule(method)} that is soft in training alone, with a scale that is 0 for whoever skips, got soft "
            f"{'without a scale' if training else 'outside of training'}. Leave soft out there."
        )
    if decision.otherwise is not None and keep is None and not training:
        raise PluginFault(
            f"{_rule(method)} that says by keep who gets what otherwise gives, got keep=None outside of training. "
            "Leave otherwise out where every token executes."
        )


def versions(view: SiteView) -> tuple[int, ...]:
    """How often each tensor that a method is shown has been written into; see `check_untouched`."""
    call = view.call
    return tuple(map(_version, (view.hidden, call.input_ids, call.valid, call.positions)))


def check_untouched(view: SiteView, before: tuple[int, ...], method: object) -> None:
    """Refuse a method that wrote into what it was shown: the branches and other sites read that too.

    Args:
        before: `versions` of the view before the method was asked.

    Raises:
        PluginFault: With the tensors.
    """
    if (now := versions(view)) != before:
        names = ("view.hidden", "view.call.input_ids", "view.call.valid", "view.call.positions")
        changed = [name for name, *counts in zip(names, before, now, strict=True) if counts[0] != counts[1]]
        raise PluginFault(
            f"A method changes nothing of what it is shown, but decide of {in_plugin(type(method))} writes into "
            f"{' and '.join(changed)}. Work on a copy: `{changed[0]}.clone()`."
        )


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def check_ahead(ahead: object, sites: int, method: object) -> None:
    """Refuse what is no answer of `Method.decide_ahead` for so many sites; each is looked at where it is handed out.

    Raises:
        PluginFault: With what the method gave.
    """
    if isinstance(ahead, Sequence) and len(ahead) == sites and all(isinstance(one, Decision) for one in ahead):
        return
    kinds = {type(one).__name__ for one in ahead} if isinstance(ahead, Sequence) else set()
    said = f"{len(ahead)} of {' and '.join(sorted(kinds))}" if isinstance(ahead, Sequence) else type(ahead).__name__
    raise PluginFault(
        f"decide_ahead of {in_plugin(type(method))} must give None or a list of {sites} decisions, one for each site "
        f"in execution order, got {said}. Give EXECUTE_ALL where every token executes."
    )


def check_losses(losses: object, method: object) -> None:
    """Refuse what is no answer of `Method.losses`.

    Raises:
        PluginFault: With what the method gave.
    """
    for name, one in losses.items() if isinstance(losses, Mapping) else [(None, losses)]:
        pair = one if isinstance(one, tuple) and len(one) == 2 else (None, None)
        if not (
            isinstance(name, str)
            and name
            and _is_number(pair[0])
            and isinstance(pair[1], Tensor)
            and pair[1].dim() == 0
        ):
            raise PluginFault(
                f"The losses of {in_plugin(type(method))} must be a mapping of names to pairs of a weight and a tensor "
                f"without axes, got {one_line(repr(one), 60)} under {name!r}. Take the mean over real tokens."
            )


def check_weight(weight: object, method: object) -> None:
    """Refuse what is no answer of `Method.main_loss_weight`.

    Raises:
        PluginFault: With what the method gave.
    """
    if not _is_number(weight):
        raise PluginFault(
            f"The main_loss_weight of {in_plugin(type(method))} must be a finite number, got "
            f"{one_line(repr(weight), 60)}. Give 1.0 where the cross entropy counts in full."
        )


def check_booked(layer: object, tokens: object, layers: int) -> None:
    """Refuse work that a method says was done in order to decide, but that nothing can be booked for.

    Raises:
        PluginFault: There is no such layer, or no tokens are named.
    """
    if not (type(layer) is int and 0 <= layer < layers and isinstance(tokens, Tensor)):
        raise PluginFault(
            f"What is done in order to decide is booked for one of {layers} layers, from 0 on, and a tensor of flat "
            f"indices of tokens, got layer {one_line(repr(layer), 60)} and {_kind(tokens)}. Use view.site.layer."
        )


def check_count(states: object) -> None:
    """Refuse a number of states that is none.

    Raises:
        PluginFault: Likewise.
    """
    if not (type(states) is int and states >= 0):
        raise PluginFault(
            f"States that are multiplied are counted by a whole number from 0 on, got {one_line(repr(states), 60)}. "
            f"Use view.rescaled, which counts them."
        )


def _is_number(value: object) -> bool:
    """Whether it is a finite number, on the host or as a tensor without axes, which is not read."""
    if isinstance(value, Tensor):
        return value.dim() == 0
    return isinstance(value, Real) and math.isfinite(value)


def check_instead(output: object, tokens: int, hidden: Tensor, method: object) -> None:
    """Refuse what is no output of `Decision.otherwise` for so many tokens of hidden states [B, S, H].

    Raises:
        PluginFault: With what it gave.
    """
    wanted = tokens, hidden.shape[-1]
    if not (
        isinstance(output, Tensor)
        and output.shape == wanted
        and output.is_floating_point()
        and _lies_with(output, hidden)
    ):
        raise PluginFault(
            f"{_rule(method)} whose otherwise gives numbers of shape {wanted} (tokens asked for, width) on "
            f"{hidden.device}, got {_kind(output)}. Index states with the flat indices it is called with."
        )


def _is_flag(value: object) -> bool:
    return value is True or value is False


def _lies_with(tensor: Tensor, hidden: Tensor) -> bool:
    return tensor.device == hidden.device and tensor.layout == torch.strided


def _rule(method: object) -> str:
    name, place, file = in_plugin(type(method)).partition(" (")
    return f"{name}.decide{place}{file} must give a Decision"


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    layout = "" if value.layout == torch.strided else f", {str(value.layout).removeprefix('torch.')}"
    return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} on {value.device}{layout}"
