"""Finds methods, tasks, models, families of models, configs, leaderboards, commands of a board and launchers by name.

The core never imports a plugin by itself: names come from entry points (`adaptive_bench.<group>`) of any installed
package and from files given with `--plugin`. An object is imported only when it is asked for.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, get_args

from adaptive_bench import errors
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, PluginFault, UsageError, message_of, one_line
from adaptive_bench.validation import NAME

Group = Literal["methods", "tasks", "models", "families", "configs", "leaderboards", "board_commands", "launchers"]
DISTRIBUTION = "adaptive-bench"
_registered: dict[tuple[Group, str], tuple[object, str]] = {}
_loading: list[Path] = []  # plugin files that are being run now; the last one is the innermost
_loaded: set[str] = set()  # plugin files that were run


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
    """Return a sentence that suggests the closest known name, or lists the known names."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."


def names(group: Group) -> list[str]:
    """Return every name in a group, sorted, without importing anything."""
    return sorted({*_installed(group), *(name for of, name in _registered if of == group)})


def one_of(group: Group) -> str:
    """Return the singular of a group's name: `method` for `methods`."""
    return "family" if group == "families" else group.removesuffix("s")


def check_name(group: Group, name: str) -> None:
    """Refuse a name that is not registered, without importing anything.

    Raises:
        UsageError: The name is not registered; the message suggests the closest one.
    """
    if (group, name) not in _registered and name not in _installed(group):
        raise UsageError(f"No {one_of(group)} is called {name!r}. {did_you_mean(str(name), names(group))}")


def get(group: Group, name: str) -> Any:
    """Return the registered object.

    Raises:
        UsageError: The name is not registered; the message suggests the closest one.
        PluginFault: A plugin cannot be imported.
        EnvironmentProblem: A part of this package cannot be imported.
    """
    if (group, name) in _registered:
        return _registered[group, name][0]
    check_name(group, name)
    entry = _installed(group)[name]
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results that other programs read
            thing = entry.load()
    except AdaptiveBenchError:
        raise
    except (Exception, SystemExit) as error:  # importing runs the plugin's code, and that may raise anything
        kind = PluginFault if is_foreign(group, name) else EnvironmentProblem
        raise kind(
            f"The {one_of(group)} {name!r} ({entry.value}) of {origin(group, name)} cannot be loaded: "
            f"{type(error).__name__}: {message_of(error)}. Correct or reinstall its package."
        ) from error
    file = getattr(sys.modules.get(entry.module.partition(".")[0]), "__file__", None)
    if file is not None and is_foreign(group, name):
        errors.watch(Path(file).parent if Path(file).name == "__init__.py" else Path(file))
    return thing


def origin(group: Group, name: str) -> str:
    """Return where a name comes from: the distribution with its version, or the plugin file."""
    if (group, name) in _registered:
        return _registered[group, name][1]
    return _origin(_installed(group)[name])


@cache  # every access to a distribution's metadata reads it from disk
def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def file_of(group: Group, name: str) -> Path | None:
    """Return the file that defines a registered object, without importing it; `None` if there is no file."""
    if (group, name) in _registered:
        where = Path(origin(group, name))
        return where if where.is_file() else None
    entry = _installed(group).get(name)
    found = None if entry is None else importlib.util.find_spec(entry.module)
    return None if found is None or found.origin is None else Path(found.origin)


def target_of(group: Group, name: str) -> tuple[str, str] | None:
    """Return the module and attribute of an installed name; `None` for a name that this process registered."""
    entry = None if (group, name) in _registered else _installed(group).get(name)
    return None if entry is None else (entry.module, entry.attr)


def is_foreign(group: Group, name: str) -> bool:
    """Whether a name comes from a plugin and not from this distribution."""
    return origin(group, name).partition(" ")[0] != DISTRIBUTION


def is_foreign_task(name: str) -> bool:
    """Whether a task comes from a plugin; a task that is not registered is lm-eval's own.

    Args:
        name: Name of the task; it may have an argument after a colon.
    """
    registered = name.partition(":")[0]
    return registered in names("tasks") and is_foreign("tasks", registered)


def has_source(group: Group, name: str) -> bool:
    """Whether another process can load a registered object, from a plugin file or an installed package."""
    return (group, name) not in _registered or origin(group, name) in _loaded


def needs_main() -> bool:
    """Whether other processes must run the program's main file to have everything that is registered. That is so if the
    main file, or a module that it imports, registers something itself.
    """
    return any(where not in _loaded for _, where in _registered.values())


def plugin_files() -> list[Path]:
    """Return the files given with `--plugin`, in the order in which they were loaded."""
    origins = dict.fromkeys(where for _, where in _registered.values())
    return [Path(where) for where in origins if where.endswith(".py") and Path(where).is_file()]


def register(group: Group, name: str) -> Callable[[Any], Any]:
    """Register an object under a name; a decorator for plugin files.

    It has no effect in a package whose entry point names the same object, so one file can be used both ways.

    Raises:
        PluginFault: The group does not exist, or the name has a wrong form or is taken.
    """
    if group not in get_args(Group):
        raise PluginFault(f"A plugin group is one of {', '.join(get_args(Group))}, got {one_line(repr(group), 60)}.")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PluginFault(
            f"A registered name has letters, digits, underscores and hyphens, got {one_line(repr(name), 60)}. Choose "
            "one like 'my_method'."
        )

    def put(thing: Any) -> Any:
        own = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
        if name in _installed(group) and _installed(group)[name].value == own:
            return thing
        if name in names(group):
            raise PluginFault(
                f"The {one_of(group)} {name!r} exists already ({origin(group, name)}). Choose another name."
            )
        _registered[group, name] = (thing, str(_loading[-1]) if _loading else _file_of(thing))
        return thing

    return put


def _file_of(thing: object) -> str:
    module = sys.modules.get(getattr(thing, "__module__", ""), None)
    return getattr(module, "__file__", None) or "this process"


def load_plugins(paths: Iterable[Path] | None) -> None:
    """Load plugin files, each once."""
    loaded = {where for _, where in _registered.values()}
    for path in dict.fromkeys(path.expanduser().resolve() for path in paths or []):
        if str(path) not in loaded:
            load_plugin(path)


def load_plugin(path: Path | str) -> None:
    """Run a Python file that calls `register`.

    Raises:
        UsageError: The file does not exist, is not a Python file, or registers nothing.
        PluginFault: The file raised an error; whatever it registered before that is removed again.
    """
    path = Path(path).expanduser().resolve()
    if not path.exists():
        raise UsageError(f"--plugin takes a Python file, but there is no {str(path)!r}. Check the path.")
    if not path.is_file() or path.suffix != ".py":
        raise UsageError(f"--plugin takes a Python file, got {str(path)!r}. Name one that ends in .py.")
    # The digest keeps two files with one name apart as modules.
    module_name = f"adaptive_bench_plugin_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    errors.watch(path)
    _loading.append(path)
    _loaded.add(str(path))
    known = dict(_registered)
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except BaseException as error:
        _registered.clear()
        _registered.update(known)
        if isinstance(error, AdaptiveBenchError | KeyboardInterrupt):
            raise
        where = f" ({place})" if (place := errors.plugin_line(error)) else ""
        raise PluginFault(
            f"The plugin file {path} cannot be imported: {type(error).__name__}: {message_of(error)}{where}. "
            f"Correct the file, or install what it imports (modules beside it are found on PYTHONPATH alone); with "
            f"--debug the traceback is shown."
        ) from error
    finally:
        _loading.pop()
    if str(path) not in {where for _, where in _registered.values()}:
        raise UsageError(
            f"A plugin file registers something, got {path}, which does not. Put "
            '@adaptive_bench.registry.register("methods", "a_name") above its class.'
        )
