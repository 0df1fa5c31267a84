"""Finds methods, tasks, models, configs, leaderboards and sites by name.

The core never imports a plugin: names come from entry points (`adaptive_bench.<group>`) of any installed package and
from files given with `--plugin`. Nothing is imported before somebody asks for it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, get_args

from adaptive_bench.errors import EnvironmentProblem, UsageError

Group = Literal["methods", "tasks", "models", "configs", "leaderboards", "sites"]
_registered: dict[tuple[Group, str], tuple[object, str]] = {}
_loading: list[Path] = []  # the plugin file that is being run, if any


@cache
def _installed(group: Group) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"adaptive_bench.{group}"):
        known = found.setdefault(entry.name, entry)
        if known.value != entry.value:
            raise EnvironmentProblem(
                f"A name in the group {group} belongs to one plugin, but {entry.name!r} is claimed by {known.value} "
                f"and by {entry.value}. Uninstall one of the two packages."
            )
    return found


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the closest known name, or lists the known ones."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."


def names(group: Group) -> list[str]:
    """Every name in a group, sorted, without importing anything."""
    return sorted({*_installed(group), *(name for of, name in _registered if of == group)})


def get(group: Group, name: str) -> Any:
    """The registered object.

    Raises:
        UsageError: Nobody registered that name; the message suggests the closest one.
        EnvironmentProblem: The plugin is registered but cannot be imported.
    """
    if (group, name) in _registered:
        return _registered[group, name][0]
    if name not in _installed(group):
        raise UsageError(f"No {group.removesuffix('s')} is called {name!r}. {did_you_mean(name, names(group))}")
    entry = _installed(group)[name]
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise EnvironmentProblem(
            f"The plugin {name!r} ({entry.value}) is installed but cannot be loaded: {error}. Reinstall its package."
        ) from error


def origin(group: Group, name: str) -> str:
    """Where a name comes from: the distribution and its version, or the plugin file."""
    if (group, name) in _registered:
        return _registered[group, name][1]
    distribution = _installed(group)[name].dist
    return f"{distribution.name} {distribution.version}" if distribution else _installed(group)[name].value


def register(group: Group, name: str) -> Callable[[Any], Any]:
    """Decorator for plugin files: puts an object under a name.

    In a package whose entry point names the same object it changes nothing, so one file serves both ways.

    Raises:
        UsageError: The group does not exist or the name is taken.
    """
    if group not in get_args(Group):
        raise UsageError(f"A plugin group is one of {', '.join(get_args(Group))}, got {group!r}.")

    def put(thing: Any) -> Any:
        own = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
        if name in _installed(group) and _installed(group)[name].value == own:
            return thing
        if name in names(group):
            raise UsageError(
                f"The {group.removesuffix('s')} {name!r} exists already ({origin(group, name)}). Choose another name."
            )
        _registered[group, name] = (thing, str(_loading[-1]) if _loading else _file_of(thing))
        return thing

    return put


def _file_of(thing: object) -> str:
    module = sys.modules.get(getattr(thing, "__module__", ""), None)
    return getattr(module, "__file__", None) or "this process"


def load_plugin(path: Path) -> None:
    """Run a Python file that calls `register`.

    Raises:
        UsageError: The file does not exist, is not a Python file, or registers nothing.
        EnvironmentProblem: The file cannot be imported.
    """
    path = path.resolve()
    if not path.is_file() or path.suffix != ".py":
        raise UsageError(f"--plugin takes a Python file, got {str(path)!r}.")
    # two files of one name stay two modules
    module_name = f"adaptive_bench_plugin_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise EnvironmentProblem(f"The plugin file {path} cannot be imported: {error}.") from error
    finally:
        _loading.pop()
    if str(path) not in {where for _, where in _registered.values()}:
        raise UsageError(
            f"A plugin file registers something, got {path}, which does not. Put "
            '@adaptive_bench.registry.register("methods", "a_name") above its class.'
        )
