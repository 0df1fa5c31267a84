"""Resolves method specs: their class, their parameters, and the training that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from adaptive_bench import registry
from adaptive_bench.backbone import Backbone
from adaptive_bench.errors import PluginFault
from adaptive_bench.method.base import Method
from adaptive_bench.method.method_config import MethodConfig
from adaptive_bench.spec import MethodSpec


def method_class(spec: MethodSpec) -> type[Method]:
    """The registered class behind a spec."""
    found = registry.get("methods", spec.name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise PluginFault(
            f"A registered method must be a subclass of adaptive_bench.method.Method, got {type(found).__name__} "
            f"{getattr(found, '__name__', '')!r} under {spec.name!r} ({registry.origin('methods', spec.name)}). "
            "Correct the plugin; `adaptive-bench new-method` writes one that works."
        )
    return found


def config_of(spec: MethodSpec) -> MethodConfig:
    """The config of a spec."""
    return method_class(spec).parse_config(spec)


def method_of(spec: MethodSpec, backbone: Backbone, seed: int = 0) -> Method:
    """Builds the method of a spec for a backbone."""
    with _default_of_torch(torch.float32):  # a method's own parameters are fp32, since scores are computed in fp32
        return method_class(spec)(config_of(spec), backbone, spec.semantics, seed)


@contextmanager
def _default_of_torch(dtype: torch.dtype) -> Iterator[None]:
    """Give new tensors this dtype inside the block, whatever default the caller has set."""
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
    """The spec to train for this spec (the dense model for untrained random skipping).

    Parameters at their default are left out, so that `gateskip[shape=vector]` is trained as `gateskip`.
    """
    found = method_class(spec)
    trained = found.training_spec(config_of(spec), spec)
    config = config_of(trained)
    fields = type(config).model_fields
    told = [pair for pair in trained.params if getattr(config, pair[0]) != fields[pair[0]].get_default()]
    return MethodSpec(trained.name, tuple(told), trained.semantics)


def trained_alike(one: MethodSpec, other: MethodSpec) -> bool:
    """Whether weights trained for one spec serve the other: the same method, trained with equal parameters."""
    first, second = training_spec(one), training_spec(other)
    # Configs rather than specs, since a spec may write one value in several ways.
    return (first.name, first.semantics) == (second.name, second.semantics) and (config_of(first) == config_of(second))


def starting_spec(spec: MethodSpec) -> MethodSpec | None:
    """The spec whose trained backbone the training of `spec` starts from; `None` means the pretrained backbone."""
    found = method_class(spec).starts_from(spec)
    if found == spec:
        raise PluginFault(
            f"A training starts from another spec's training or from the pretrained backbone, but starts_from of "
            f"{spec} gives {found} itself. Correct the method."
        )
    return found


def why_not_shuffled(spec: MethodSpec) -> str | None:
    """Why tokens cannot exchange their decisions, as a clause; `None` if they can."""
    if spec.semantics == "bench":
        return None
    reasons = {"C0": None, "C1": "are made for a whole sequence", "C2": "depend on the other sequences of a batch"}
    reason = reasons[method_class(spec).paper_class]
    return None if reason is None else f"the decisions of {spec} {reason}"
