"""What a method says of itself, held to its kinds: its class before it is used, the rest when it is on a model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import get_args

from adaptive_bench.backbone import Site
from adaptive_bench.errors import PluginFault, UsageError, one_line
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.base import CausalityClass, KVPolicy, Method, MethodConfig
from adaptive_bench.method.initial_change import InitialChange
from adaptive_bench.method.search_range import SearchRange
from adaptive_bench.validation import DESCRIPTION, called_as, can_take, is_description

_FLAGS = (
    *("adapts", "draws", "once_per_prompt", "prompts_only", "skips_whole_layers", "solves_dial"),
    "spares",
    *("supports_data_parallel", "trains", "wants_layer_states"),
)
_ROUNDING = 1e-9  # of a share that is computed from a dial value
_LONGEST_DOC = 100_000  # characters
_Rule = tuple[str, str, object, bool]  # name, what it is, what it was given as, whether that holds
_held: set[type[Method]] = set()  # a class is looked at once


def check_class(found: type[Method]) -> None:
    """Refuse a class with something of another kind where the engine, a table or a page reads one.

    Raises:
        PluginFault: With the rule and what it has.
    """
    if found in _held:
        return
    _refuse(found, [*_of_class(found), *_of_hooks(found), *_of_config(found.Config)])
    _held.add(found)


def check_method(method: Method) -> None:
    """The same of a method on a model, in the mode in which it is.

    Raises:
        PluginFault: Likewise.
    """
    _refuse(type(method), _of_method(method))


def checked_skip_share(method: Method) -> float:
    """The `skip_share` of a method at its dial value.

    Raises:
        PluginFault: It is no share.
    """
    share: object = method.skip_share
    wanted, at = "a share from 0 to 1 (0.2 is 20 %)", f"skip_share at {method.dial.name} {method.value:g}"
    holds = _is_number(share) and -_ROUNDING <= method.skip_share <= 1 + _ROUNDING
    _refuse(type(method), [(at, wanted, share, holds)])
    return min(max(method.skip_share, 0.0), 1.0)


def check_told(method: Method, step: int, total_steps: int) -> None:
    """Refuse a method that was told where training stands, and did not take it in.

    Raises:
        PluginFault: Its `begin_step` does not call that of its base class.
    """
    if method.progress != (step, total_steps):
        raise PluginFault(
            f"The begin_step of a method calls that of its base class, but that of {in_plugin(type(method))} does not. "
            f"Begin it with super().begin_step(step, total_steps)."
        )


def check_trainable(method: Method, groups: Sequence[object]) -> None:
    """Refuse to train where nothing trains.

    Args:
        groups: Of parameters that do.

    Raises:
        PluginFault: The method freezes the backbone and has no parameter that trains.
        UsageError: All parameters were frozen otherwise.
    """
    if groups:
        return
    if method.freezes_backbone:
        raise PluginFault(
            f"A method that freezes the backbone has parameters of its own that train, got freezes_backbone = True and "
            f"none of {in_plugin(type(method))}. Give it such, or leave freezes_backbone out; what needs no training "
            f"says so by trains = False or training_spec."
        )
    raise UsageError(
        "A training changes some parameter, got a model of which all are frozen. Call requires_grad_(True) on what is "
        "to train."
    )


def _refuse(found: type[Method], rules: Iterator[_Rule] | list[_Rule]) -> None:
    for name, wanted, given, holds in rules:
        if not holds:
            raise PluginFault(
                f"Of the method {in_plugin(found)}, {name} is {wanted}, got {one_line(repr(given)[:200], 60)}. "
                f"Correct it in the class."
            )


def _of_class(found: type[Method]) -> Iterator[_Rule]:
    yield _one_of("unit", ("branch", "layer"), found.unit)
    yield _one_of("paper_class", get_args(CausalityClass), found.paper_class)
    for name in _FLAGS:
        value = getattr(found, name)
        yield name, "True or False", value, isinstance(value, bool)
    text: object = found.__doc__
    holds = isinstance(text, str) and len(text) <= _LONGEST_DOC and all(map(is_description, _paragraph(text)))
    yield "the docstring", f"text whose first paragraph has lines that are each {DESCRIPTION}", text, not text or holds


def _of_hooks(found: type[Method]) -> Iterator[_Rule]:
    """What a class gives in place of the base class's can be called as that is."""
    for name, own in vars(Method).items():
        given = inspect.getattr_static(found, name)
        if given is own or (name.startswith("_") and name != "__init__"):
            continue
        if isinstance(own, property):
            is_call = isinstance(given, FunctionType | classmethod | staticmethod)
            yield name, "a property (`@property`) or a value", called_as(name, given), not is_call
        elif isinstance(own, FunctionType | classmethod):
            wanted = called_as(name, own)
            count = len(inspect.signature(own.__func__ if isinstance(own, classmethod) else own).parameters)
            if isinstance(own, classmethod):
                of_class = isinstance(given, classmethod | staticmethod)
                holds = of_class and can_take(getattr(found, name), count - 1)
                yield name, f"a classmethod (`@classmethod`) that is called as {wanted}", called_as(name, given), holds
            else:
                holds = callable(given) and can_take(given, count)
                yield name, f"a function that is called as {wanted}", called_as(name, given), holds


def _paragraph(text: str) -> list[str]:
    return inspect.cleandoc(text).partition("\n\n")[0].splitlines()


def _of_config(config: type[MethodConfig]) -> Iterator[_Rule]:
    fields = config.model_fields
    for name, field in fields.items():
        text: object = field.description
        holds = text is None or (isinstance(text, str) and is_description(text.replace("\n", " ")))
        yield f"the description of the parameter {name}", DESCRIPTION, text, holds
        other: object = field.validation_alias or field.alias
        yield f"the name of the parameter {name}", "its only one: it has no alias", other, other is None
    wanted = "a mapping of names of parameters to search ranges (`SearchRange`)"
    space: object = config.search_space
    is_space = isinstance(space, Mapping) and all(isinstance(one, SearchRange) for one in space.values())
    yield "search_space", wanted, space, is_space and set(config.search_space) <= set(fields)
    companions, falling = _pairs(config.companions), _pairs(config.falling)
    yield "companions", "a mapping of texts to texts", config.companions, companions is not None
    yield "falling", "a mapping of parameters to parameters", config.falling, (falling or set()) <= set(fields)
    yield "falling", "a mapping of parameters to parameters", config.falling, falling is not None


def _of_method(method: Method) -> Iterator[_Rule]:
    yield _one_of("kv_policy", get_args(KVPolicy), method.kv_policy)
    most: object = method.max_saved_tokens
    yield "max_saved_tokens", "a share from 0 to 1", most, _is_number(most) and 0 <= method.max_saved_tokens <= 1
    sites: object = method.eligible_sites
    are_sites = isinstance(sites, set | frozenset) and all(isinstance(one, Site) for one in sites)
    yield "eligible_sites", "a set of sites (`Site`)", sites, are_sites
    for name in ("decides_by_layer", "freezes_backbone", "repeatable", "prepares_training"):
        value: object = getattr(method, name)
        yield name, "True or False", value, isinstance(value, bool)
    change: object = method.initial_change(method.config)
    is_change = (
        isinstance(change, InitialChange)
        and isinstance(change.reason, str)
        and all(map(_is_number, (change.bound, change.skipped)))
    )
    yield "initial_change", "None or an InitialChange with a reason and a bound", change, change is None or is_change
    comes_to: object = method.config.on_model(method.backbone_size[0])
    yield "what on_model of its Config gives", "a mapping", comes_to, isinstance(comes_to, Mapping)
    takes: object = method.takes_target(method.config)
    yield "takes_target", "True or False", takes, isinstance(takes, bool)
    if type(method).dial_for is not Method.dial_for:
        with suppress(UsageError):  # it has nothing to answer with yet
            nothing, given = method.dial.skip_nothing, method.dial_for(0.0)
            yield "dial_for(0.0)", f"the dial value that skips nothing, {nothing:g}", given, given == nothing
    if method.kv_policy == "defer":
        layers, first = method.backbone_size[0], method.defer_layer
        holds = type(first) is int and 0 <= first < layers
        yield "defer_layer", f"the number of one of {layers} layers, from 0 on", first, holds


def _pairs(value: object) -> set[str] | None:
    """The texts of a mapping of texts to texts."""
    texts = [one for pair in value.items() for one in pair] if isinstance(value, Mapping) else [None]
    return {one for one in texts if isinstance(one, str)} if all(isinstance(one, str) for one in texts) else None


def _one_of(name: str, known: tuple[str, ...], value: object) -> _Rule:
    return name, f"one of {', '.join(map(repr, known))}", value, isinstance(value, str) and value in known


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
