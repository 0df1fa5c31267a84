"""What a plugin has to leave as it found it: functions of libraries and of this package, and the process's settings.

Plugins share a process with this package for some of the time: while they are imported, while a run is planned, and
while a task of theirs is asked. What they change there would change the numbers of others without a word. `watching`
compares the state before and after, puts back what was changed, and ends in an error that names the plugin; whoever is
about to keep a result calls `check` first.

A function counts as changed when a name that was there, in a module, a class or a table of functions, stands for
something else, when its code was exchanged, or when a new name hides an inherited method or a builtin. New names are
nobody's loss, and neither are values that are no functions: libraries keep caches in them. Of a library that was not
loaded before nobody knows what was there; it counts as changed where it holds a plugin's function.

Some thousand modules and classes are looked at several times a second of work with a plugin. So what was found in one
is kept from state to state for as long as the same names in it stand for the same objects, and comparing is left to C.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, cast

from adaptive_bench import faults
from adaptive_bench.errors import PluginFault, message_of, one_line
from adaptive_bench.process_settings import settings

# What computes, scores and writes. A whole package with a final dot; libraries that are not loaded are not looked at.
_GUARDED = """
    accelerate.accelerator accelerate.optimizer accelerate.utils.random adaptive_bench. builtins datetime hashlib
    json. lm_eval. math numpy. os pathlib pickle random re. safetensors. scipy. shutil statistics subprocess threading
    time tokenizers. torch torch._C torch._C._nn torch._tensor torch.autograd. torch.backends. torch.cuda torch.cuda.amp
    torch.linalg torch.nn. torch.optim. torch.random torch.serialization torch.special torch.utils.checkpoint
    transformers.
""".split()  # noqa: SIM905 - a list of 30 lines
_PACKAGES = tuple(name for name in _GUARDED if name.endswith("."))
_MODULES = {name.removesuffix(".") for name in _GUARDED}
# Plugin files have modules of their own (`registry.load_plugin`), which are nobody else's business.
_PLUGIN_MODULE = "adaptive_bench_plugin_"
_DESCRIPTORS = (staticmethod, classmethod, property)
# Written by Python when a class is first used, and by torch with the default dtype, which is a setting.
_BOOKKEEPING = {"__doc__", "__signature__", "__class_getitem__", "Storage"}
_WRAPPERS = ("torch/optim/optimizer.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")
_OF_LIBRARIES = {"TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}  # set when they are loaded
# Of these exactly: they hold no table, and most values are such.
_PLAIN = {str, int, float, bool, NoneType, bytes, tuple, list, set, frozenset, ModuleType, BuiltinFunctionType}
_code_of = attrgetter("__code__")
_MOST_NAMED = 5
_MISSING = object()


@dataclass(frozen=True)
class Change:
    """Something that is no longer what it was.

    Attributes:
        what: Its name, as a user would look for it.
        put_back: Makes it what it was.
    """

    what: str
    put_back: Callable[[], object]


class _Owner:
    """A module or a class, and what its names stood for when this was made.

    Attributes:
        functions: Those among the values, and likewise `classes`.
        holders: The values that may be or keep tables of functions, with their names.
    """

    def __init__(self, label: str, owner: Any) -> None:
        self.label, self.owner = label, owner
        before = dict(vars(owner))
        self.names, self.values = list(before), list(before.values())
        self.functions = [value for value in self.values if isinstance(value, FunctionType)]
        self.classes = [value for value in self.values if isinstance(value, type)]
        self.holders = [
            (f"{label}.{name}", value)
            for name, value in before.items()
            if type(value) not in _PLAIN and not name.startswith("__") and not isinstance(value, _NO_HOLDERS)
        ]

    def is_unchanged(self) -> bool:
        """Whether the same names stand for the same objects, in the same order."""
        now = vars(self.owner)
        return len(now) == len(self.values) and all(map(is_, list(now.values()), self.values)) and self.names == [*now]


_NO_HOLDERS = (FunctionType, type, ModuleType)
_latest: dict[int, _Owner] = {}  # of the state that was made last


class State:
    """The functions and settings of this process as they stand when it is made."""

    def __init__(self) -> None:
        global _latest
        self._settings = [(setting, setting.read()) for setting in settings()]
        self._environment = dict(os.environ)
        self._loaded = dict(sys.modules)
        self._modules = {name: module for name, module in self._loaded.items() if _is_guarded(name, module)}
        self._owners: dict[int, _Owner] = {}
        self._tables: list[tuple[str, dict[Any, Any], dict[Any, Any]]] = []
        self._looked_into: set[int] = set()  # classes of others, and tables that many modules import, once
        for name, module in self._modules.items():
            self._add(name, module)
        self._codes = [(one, [*map(_code_of, one.functions)]) for one in self._owners.values() if one.functions]
        _latest = self._owners

    def _add(self, label: str, owner: Any) -> None:
        if id(owner) in self._owners:  # a module of two names
            return
        known = _latest.get(id(owner))
        as_known = known is not None and known.owner is owner and known.label == label and known.is_unchanged()
        one = known if known is not None and as_known else _Owner(label, owner)
        self._owners[id(owner)] = one
        for kind in one.classes:
            if id(kind) in self._owners or id(kind) in self._looked_into:
                continue
            if _is_guarded(kind.__module__, sys.modules.get(kind.__module__)):
                self._add(f"{kind.__module__}.{kind.__qualname__}", kind)
            else:
                self._looked_into.add(id(kind))
        for name, value in one.holders:
            if id(value) not in self._looked_into:
                self._looked_into.add(id(value))
                self._tables += _tables(name, value)

    def changes(self) -> list[Change]:
        """What is different by now: functions, or if all of these are there, settings, which are read with them."""
        found: list[Change] = []
        for name, module in self._modules.items():
            if not _is_same(module, sys.modules.get(name)):
                found.append(Change(f"the module {name}", partial(sys.modules.__setitem__, name, module)))
        found += self._exchanged_code()
        for one in self._owners.values():
            if not one.is_unchanged():
                found += _owner_changes(one.label, one.owner, dict(zip(one.names, one.values, strict=True)))
        for label, table, functions in self._tables:
            found += [
                Change(f"{label}[{key!r}]", partial(table.__setitem__, key, function))
                for key, function in functions.items()
                if dict.get(table, key) is not function
            ]
        found += self._patched_since()
        if found:
            return found
        settings = [(one, before) for one, before in self._settings if one.read() != before]
        found = [Change(setting.what, partial(setting.write, before)) for setting, before in settings]
        return found + _environment_changes(self._environment)

    def _exchanged_code(self) -> list[Change]:
        """Functions that run other code; one that many modules import is named once."""
        found: dict[int, Change] = {}
        for one, codes in self._codes:
            if all(map(is_, map(_code_of, one.functions), codes)):
                continue
            names = {id(value): name for name, value in zip(one.names, one.values, strict=True)}
            for function, code in zip(one.functions, codes, strict=True):
                if function.__code__ is not code:
                    what = f"the code of {one.label}.{names[id(function)]}"
                    found[id(function)] = Change(what, partial(setattr, function, "__code__", code))
        return list(found.values())

    def _patched_since(self) -> list[Change]:
        """Functions of plugins in libraries that were loaded after this was made; what they replaced is lost."""
        found: list[Change] = []
        seen: set[int] = set()
        for name, module in list(sys.modules.items()):
            if self._loaded.get(name) is module or not _is_guarded(name, module):
                continue
            for label, owner in ((name, module), *_classes(module)):
                if id(owner) in self._owners or id(owner) in seen:
                    continue
                seen.add(id(owner))
                found += [
                    Change(f"{label}.{key}", partial(_forget, name))
                    for key, value in list(vars(owner).items())
                    if faults.is_watched(_code_file(value))
                ]
        return found


def _is_same(module: ModuleType, now: object) -> bool:
    """Whether a module is what it was, be it executed once more: the one of transformers does so itself."""
    if now is module:
        return True
    spec, again = (getattr(one, "__spec__", None) for one in (module, now))
    return spec is not None and again is not None and spec.origin is not None and again.origin == spec.origin


def _owner_changes(label: str, owner: Any, before: Mapping[str, Any]) -> list[Change]:
    """Functions of a module or class that are not what they were."""
    now = vars(owner)
    found = [
        Change(f"{label}.{name}", partial(setattr, owner, name, value))
        for name, value in before.items()
        if now.get(name) is not value
        and (callable(value) or isinstance(value, _DESCRIPTORS))
        and name not in _BOOKKEEPING
        and not _is_wrapped_by_torch(now.get(name))
    ]
    if now.keys() != before.keys():
        hidden = _hidden_names(owner)
        found += [
            Change(f"{label}.{name}", partial(delattr, owner, name))
            for name in list(now.keys() - before.keys())
            if callable(now[name])
            and name in hidden
            and name not in _BOOKKEEPING
            and not _is_wrapped_by_torch(now[name])
        ]
    return found


def _is_wrapped_by_torch(value: Any) -> bool:
    """Whether torch itself put this in place of what it wraps: the `step` of an optimizer's class when the first one is
    made, and a few functions when its compiler is loaded.
    """
    file = _code_file(value)
    return bool(file) and hasattr(value, "__wrapped__") and file.replace(os.sep, "/").endswith(_WRAPPERS)


def _hidden_names(owner: Any) -> set[str]:
    """Names that a new one in a module or class would hide."""
    if isinstance(owner, ModuleType):
        return set() if owner is builtins else set(vars(builtins))
    return {name for parent in owner.__mro__[1:] for name in vars(parent)}


def _tables(label: str, value: Any) -> list[tuple[str, dict[Any, Any], dict[Any, Any]]]:
    """Tables of functions: a dictionary, or those that an object of a library keeps, each with what it holds."""
    inner = {label: value} if isinstance(value, dict) else {}
    if not inner and _is_guarded(type(value).__module__, sys.modules.get(type(value).__module__)):
        kept = getattr(value, "__dict__", {})
        inner = {f"{label}.{name}": each for name, each in dict(kept).items() if isinstance(each, dict)}
    found = []
    for name, table in inner.items():
        # Dictionaries of libraries load what they hold when they are asked themselves, and threads fill them meanwhile.
        pairs = list(dict.items(table))
        functions = {key: each for key, each in pairs if isinstance(each, (FunctionType, type))}
        if functions:
            found.append((name, table, functions))
    return found


def _classes(module: ModuleType) -> Iterator[tuple[str, type]]:
    """Those that a module defines."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield f"{module.__name__}.{name}", value


def _code_file(value: Any) -> str:
    """Where a function was written; an empty text for everything else. Objects of libraries may run code of their own,
    or fail, when they are asked for an attribute: those of `torch.cuda` do on a machine without one.
    """
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return value.__code__.co_filename if isinstance(value, FunctionType | MethodType) else ""


def _forget(name: str) -> None:
    """Have a library loaded anew by whoever imports it next."""
    sys.modules.pop(name, None)


def _is_guarded(name: str, module: Any) -> bool:
    if not isinstance(module, ModuleType) or name.startswith(_PLUGIN_MODULE):
        return False
    return name in _MODULES or name.startswith(_PACKAGES)


def _environment_changes(before: Mapping[str, str]) -> list[Change]:
    return [
        Change(f"the environment variable {name}", partial(_set_variable, name, before.get(name)))
        for name in sorted(before.keys() | os.environ.keys())
        if before.get(name) != os.environ.get(name) and name not in _OF_LIBRARIES
    ]


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


_watches: list[tuple[str, State]] = []


@contextmanager
def watching(who: str | None) -> Iterator[None]:
    """Code of a plugin runs in the block; what it changes is put back at its end.

    Args:
        who: The plugin, as an error names it; `None` if there is none, and nothing is looked at.

    Raises:
        PluginFault: Something was changed; also in place of an error in the block, which may come from that.
    """
    if who is None:
        yield
        return
    state = State()
    _watches.append((who, state))
    try:
        yield
    except Exception as error:
        if (changes := _put_back(state)) and not isinstance(error, PluginFault):
            raise PluginFault(f"{_text(who, changes)} Then: {type(error).__name__}: {message_of(error)}") from error
        raise
    except BaseException:
        _put_back(state)
        raise
    else:
        if changes := _put_back(state):
            raise PluginFault(_text(who, changes))
    finally:
        _watches.pop()


class _AtStandardError:
    """Standard output that is standard error, and can be closed by itself."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@contextmanager
def same_streams(who: str) -> Iterator[None]:
    """Code of a plugin runs in the block, which leaves standard output and standard error as they are. What it prints
    goes to standard error: standard output is for results, which other programs read.

    Raises:
        PluginFault: It put something else in their place, or closed them. They are put back first; in place of a closed
            one nothing is written any more.
    """
    with redirect_stdout(cast(Any, _AtStandardError())):
        yield from _checked_streams(who)


def _checked_streams(who: str) -> Iterator[None]:
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    yield
    changed = [name for name, stream in before.items() if getattr(sys, name) is not stream or stream.closed]
    for name in changed:
        setattr(sys, name, open(os.devnull, "w") if before[name].closed else before[name])  # noqa: SIM115, PTH123
    if changed:
        raise PluginFault(
            f"A plugin leaves standard output and standard error to whoever runs it, but {who} closed or exchanged sys."
            f"{' and sys.'.join(changed)}. Use contextlib.redirect_stdout around what is not to be seen."
        )


def check() -> None:
    """Refuse to keep a result that was made while a plugin had changed what it has to leave alone.

    Raises:
        PluginFault: It has.
    """
    for who, state in _watches:
        if changes := state.changes():
            raise PluginFault(_text(who, changes))


def _put_back(state: State) -> list[Change]:
    found: list[Change] = []
    for _ in range(2):  # functions first, see `State.changes`
        if not (changes := state.changes()):
            break
        for change in changes:
            change.put_back()
        found += changes
    return found


def _text(who: str, changes: list[Change]) -> str:
    named = [one_line(change.what, 120) for change in changes]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return (
        f"A plugin leaves as they are the functions of libraries, the settings of torch and of the process, but {who} "
        f"changed {', '.join(named[:_MOST_NAMED])}{more}. Nothing is kept of it. Call what you need instead of "
        "replacing it, and put settings back where you set them."
    )
