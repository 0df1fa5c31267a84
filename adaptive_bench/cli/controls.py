"""The controls that `run --methods` adds: what a method keeps is told by what the dense model and fewer layers keep."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_bench.spec import MethodSpec

_DENSE, _STATIC = "dense", "static_depth"
_NEED_NONE = (_DENSE, _STATIC, "base")  # alone they are compared with nothing


def with_controls(methods: Sequence[str], steps: int) -> tuple[str, ...]:
    """Method specs, and behind them the controls that they lack: the dense model, and static depth, which is trained
    where anything is. Of a control that is named in any variant none is added.

    Args:
        methods: Specs as they were asked for.
        steps: Of the training.
    """
    names = {MethodSpec.parse(text).name for text in methods}
    if names <= set(_NEED_NONE):
        return tuple(methods)
    controls = {_DENSE: _DENSE, _STATIC: f"{_STATIC}[trained=true]" if steps else _STATIC}
    return (*methods, *(spec for name, spec in controls.items() if name not in names))
