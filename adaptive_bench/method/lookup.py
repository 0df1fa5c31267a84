"""From a method spec to its class, and to what has to be trained for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.errors import PluginFault, UsageError, message_of, one_line
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.base import Method, MethodConfig
from adaptive_bench.method.declared import check_class
from adaptive_bench.spec import MethodSpec


def method_class(spec: MethodSpec) -> type[Method]:
    """The registered class behind a spec.

    Raises:
        UsageError: No method has that name.
        PluginFault: What a plugin registered under it is no method.
    """
    found = registry.get("methods", spec.name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise PluginFault(
            f"What is registered as a method is a subclass of adaptive_bench.method.Method, got {type(found).__name__} "
            f"{getattr(found, '__name__', '')!r} under {spec.name!r} ({registry.origin('methods', spec.name)}). "
            "Correct the plugin; `adaptive-bench new-method` writes one that works."
        )
    if not (isinstance(found.Config, type) and issubclass(found.Config, MethodConfig)):
        raise PluginFault(
            f"The Config of a method is a subclass of adaptive_bench.method.MethodConfig, got {found.Config!r} of "
            f"{spec.name!r} ({registry.origin('methods', spec.name)}). Correct the plugin."
        )
    check_class(found)
    return found


def config_of(spec: MethodSpec) -> MethodConfig:
    """The parameters of a spec.

    Raises:
        UsageError: No method has that name, or it has no such parameter or value.
        PluginFault: A plugin's method gives something else.
    """
    found = method_class(spec)
    config: object = found.parse_config(spec)
    if not isinstance(config, found.Config):
        raise PluginFault(
            f"What parse_config of a method gives is its Config, got {one_line(repr(config), 60)} of "
            f"{in_plugin(found)}. Correct it in the class, or leave it to the base class."
        )
    return config


def method_of(spec: MethodSpec, backbone: Backbone, seed: int = 0) -> Method:
    """The method of a spec, made for a backbone.

    Args:
        seed: For whatever it draws at random.

    Raises:
        UsageError: As `config_of`; or the method refuses the backbone.
        PluginFault: What a plugin registered is no method, or one that takes parameters of the backbone for its own.
    """
    found = method_class(spec)
    method = _made(found, config_of(spec), backbone, spec.semantics, seed)
    own = {id(parameter) for parameter in backbone.model.parameters()}
    if borrowed := [name for name, parameter in method.named_parameters() if id(parameter) in own]:
        raise PluginFault(
            f"A method has parameters of its own, but {', '.join(borrowed[:3])} of {in_plugin(found)} belong to the "
            f"backbone. Never make modules of the backbone attributes of the method: in decide they are reached "
            f"through view.call.backbone."
        )
    return method


def _made(kind: type[Method], *arguments: Any) -> Method:
    """A method of its class.

    Raises:
        PluginFault: Its `__init__` leaves out that of the base class.
    """
    method = kind.__new__(kind)  # apart, to be looked at where `__init__` raises
    error = None
    try:
        with _default_of_torch(torch.float32):  # scores are computed in it, so what a method adds has it (`Method`)
            method.__init__(*arguments)  # type: ignore[misc]
    except AttributeError as raised:
        # What torch says of modules and parameters in what is no module yet; anything else is the method's own error.
        if "_modules" in vars(method) or not re.search(r"Module\.__init__|_modules|_parameters|_buffers", str(raised)):
            raise
        error = raised
    if error is not None or "listeners" not in vars(method):
        raise PluginFault(
            f"The __init__ of a method calls that of its base class first, but that of {in_plugin(kind)} does not. "
            f"Begin it with super().__init__(config, backbone, semantics, seed)."
        ) from error
    return method


@contextmanager
def _default_of_torch(dtype: torch.dtype) -> Iterator[None]:
    """New tensors have this type in the block, where the caller has set another one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def takes_target(spec: MethodSpec) -> bool:
    """Whether training of a spec moves towards a saving."""
    return method_class(spec).takes_target(config_of(spec))


def training_spec(spec: MethodSpec) -> MethodSpec:
    """What has to be trained for this spec (untrained random skipping: the dense model).

    Parameters that say what holds anyway are left out, so that `gateskip[shape=vector]` is trained as `gateskip`.
    """
    found = method_class(spec)
    trained = found.training_spec(config_of(spec), spec)
    config = _config_named(spec, trained, "training_spec", "What has to be trained for a method")
    fields = type(config).model_fields
    told = [pair for pair in trained.params if getattr(config, pair[0]) != fields[pair[0]].get_default()]
    return MethodSpec(trained.name, tuple(told), trained.semantics)


def _config_named(spec: MethodSpec, named: object, by: str, what: str) -> MethodConfig:
    """The config of a spec that the method of another spec names.

    Raises:
        PluginFault: It is none, or nobody knows the method or a parameter.
    """
    where = f"from the {by} of {spec.name!r} ({registry.origin('methods', spec.name)})"
    if not isinstance(named, MethodSpec):
        raise PluginFault(f"{what} is a MethodSpec, got {one_line(repr(named), 60)} {where}. Correct the plugin.")
    try:
        return config_of(named)
    except UsageError as error:
        if named == spec:
            raise
        raise PluginFault(
            f"{what} is a MethodSpec of a method and parameters that are there, got {str(named)!r} {where}: "
            f"{message_of(error)} Correct the plugin."
        ) from error


def trained_alike(one: MethodSpec, other: MethodSpec) -> bool:
    """Whether weights trained for one spec serve the other: the same method, trained with equal parameters."""
    first, second = training_spec(one), training_spec(other)
    return (first.name, first.semantics) == (second.name, second.semantics) and (config_of(first) == config_of(second))


def starting_spec(spec: MethodSpec) -> MethodSpec | None:
    """The spec whose trained backbone the training of this one starts from; `None` is the pretrained backbone.

    Raises:
        PluginFault: It is this one.
    """
    found = method_class(spec).starts_from(spec)
    if found is not None:
        _config_named(spec, found, "starts_from", "What the training of a method starts from")
    if found == spec:
        raise PluginFault(
            f"A training starts from that of another spec or from the pretrained backbone, but starts_from of {spec} "
            f"gives {found} itself. Correct the method."
        )
    return found


def why_not_shuffled(spec: MethodSpec) -> str | None:
    """Why no token can have the decisions of another one, half a sentence; `None`: it can."""
    if spec.semantics == "bench":
        return None
    reasons = {"C0": None, "C1": "are made for a whole sequence", "C2": "depend on the other sequences of a batch"}
    reason = reasons[method_class(spec).paper_class]
    return None if reason is None else f"the decisions of {spec} {reason}"
