"""Finds tasks by name: first those registered here or by plugins, then every task of lm-eval.

lm-eval's names are found without importing it and without parsing its 14,000 files. A task's YAML file has its name on
a separate line; these lines are scanned once per version of lm-eval, and the names are kept in the user's cache. A file
is parsed only when its task is used.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

from adaptive_bench import errors, registry
from adaptive_bench.data import Source
from adaptive_bench.errors import EnvironmentProblem, PluginFault, UsageError, one_line
from adaptive_bench.store import atomic
from adaptive_bench.task import OpenTask, Task, TaskGroup, check_registered

_KEY = rb"""^["']?(%s)["']?[ \t]*:[ \t]*"""
_NAME = re.compile(
    _KEY % b"task|group|class|include" + rb"""["']?([^"'\s#\[\]{}][^"'\r\n#]*?)["']?[ \t\r]*(?:#.*)?$""", re.M
)
# In brackets or as a single name on the line of the key, or as a list below it.
_TAGS = re.compile(_KEY % b"tag" + rb"""(\[[^\]]*\]|[^\r\n]*)((?:\s*\n[ \t]*-[^\r\n]*)*)""", re.M)
_WORD = re.compile(rb"\w[\w.+\-]*")
_SCHEMA = 1  # of the file in the cache


class Stock(NamedTuple):
    """A task of lm-eval, a group with its own file, or a tag (without a file) with the tasks that carry it."""

    kind: Literal["task", "group", "tag"]
    file: str | None = None
    members: tuple[str, ...] = ()


def find_task(name: str) -> Task:
    """The task of that name; a stock lm-eval task has no training text. A name that is unknown (the message suggests
    one), of a group, or without an argument that the task needs is a `UsageError`.
    """
    base, colon, argument = name.partition(":")
    if base in registry.names("tasks"):
        return _registered(base, argument if colon else None)
    check_task_name(name)
    return _described(name)


def check_task_name(name: str) -> None:
    """Refuse (`UsageError`) a name that neither a plugin, nor this package, nor lm-eval knows, with a suggestion; names
    of this package and of plugins come first.
    """
    ours = registry.names("tasks")
    if name.partition(":")[0] in ours or name in (known := stock_tasks()):
        return
    close = difflib.get_close_matches(name, ours, n=1) or difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(ours)}, and every lm-eval task."
    if len(several := name.split()) > 1 and all(one in ours or one in known for one in several):
        hint = f"Several are separated by commas: {','.join(several)}."
    raise UsageError(f"No task is called {one_line(name, 60)!r}. {hint}")


def expand_tasks(names: Iterable[str]) -> tuple[str, ...]:
    """Task names, with every group (ours or lm-eval's) replaced by its tasks; each name once. An lm-eval group that
    changes settings of its tasks, which a plain name cannot express, is a `UsageError`.
    """
    return tuple(dict.fromkeys(member for name in names for member in _members(name)))


def names_for_lm_eval(name: str, include_path: str | None) -> list[str]:
    """What lm-eval's command is given for a name: groups of this package are replaced by their tasks; patterns and file
    paths are left to lm-eval. A name that is unknown, also in the folder `include_path`, is a `UsageError`, and so is a
    task that needs an argument, which lm-eval's command cannot pass.
    """
    included = _tasks_below(include_path) if include_path else ()
    base = name.partition(":")[0]
    if name in included or name.endswith(".yaml") or Path(name).is_dir():
        return [name]
    if base in registry.names("tasks"):
        if isinstance(registry.get("tasks", base), OpenTask):
            raise UsageError(
                f"lm-eval's command takes tasks that need no argument, got {name!r}. Use `adaptive-bench run`."
            )
        return [task.harness_name or task.name for task in map(find_task, expand_tasks([name]))]
    if not any(mark in name for mark in "*?["):
        check_task_name(name)
    elif not any(fnmatch(known, name) for known in (*registry.names("tasks"), *stock_tasks(), *included)):
        raise UsageError(f"A pattern of task names must fit at least one, got {name!r}. See `list tasks`.")
    return [name]


@cache
def _tasks_below(folder: str) -> tuple[str, ...]:
    from lm_eval.tasks import TaskManager

    return tuple(TaskManager(include_path=folder, include_defaults=False).all_tasks)


def _registered(name: str, argument: str | None) -> Task:
    thing = check_registered(name, registry.get("tasks", name), registry.origin("tasks", name))
    if isinstance(thing, OpenTask):
        if not argument:
            raise UsageError(
                f"The task {name!r} needs the name of its data after a colon, got nothing. Write for example "
                f"{name}:novels."
            )
        thing = thing.make(argument)
    elif argument is not None:
        raise UsageError(f"The task {name!r} takes nothing after a colon, got {argument!r}. Leave it out.")
    if isinstance(thing, TaskGroup):
        raise UsageError(f"One task is wanted, but {name!r} is a group: {', '.join(thing.members)}. Name one of them.")
    if registry.is_foreign_task(name):
        # Code beside the YAML file, which lm-eval imports, is the plugin's too: its errors are blamed on it.
        errors.watch(thing.folder)
        if thing.name != (name if argument is None else f"{name}:{argument}"):
            raise PluginFault(
                f"A task is registered under its name, got name={thing.name!r} under {name!r} "
                f"({registry.origin('tasks', name)}). Correct one of the two."
            )
    return thing


def _members(name: str, within: tuple[str, ...] = ()) -> Iterator[str]:
    """Names of the tasks that a name stands for, found in nested groups; a name that is no group stands for itself."""
    if name in within:
        raise PluginFault(
            f"A group of tasks is no member of itself, got {name!r} in {' in '.join(map(repr, reversed(within)))}. "
            f"Correct the plugin."
        )
    if (base := name.partition(":")[0]) in registry.names("tasks"):
        thing = registry.get("tasks", base)
        members: Iterable[Any] = thing.members if isinstance(thing, TaskGroup) else ()
    else:
        stock = stock_tasks().get(name, Stock("task"))
        # A tag's tasks were found by the scan; a group lists its own, as names or as settings.
        members = _settings(stock.file)["task"] if stock.kind == "group" and stock.file else stock.members
    for member in members:
        if not isinstance(member, str):
            raise UsageError(
                f"A group stands for its tasks as they are, but lm-eval's group {name!r} changes settings of its "
                f"tasks. Name the tasks, with --num-fewshot where they need it."
            )
        yield from _members(member, (*within, name))
    if not members:
        yield name


@cache
def _settings(file: str) -> dict[str, Any]:
    """The content of an lm-eval YAML file and of the files it includes, with functions by their paths."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return load_yaml(file, resolve_func=False, recursive=True)


def _described(name: str) -> Task:
    """A task of lm-eval, as its YAML file describes it."""
    from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY

    kind, file, _ = stock_tasks()[name]
    if kind != "task" or file is None:
        raise UsageError(
            f"One task is wanted, but {name!r} is a group of lm-eval tasks. Name one of its tasks, or use it with "
            f"--tasks, where it stands for all of them."
        )
    settings = _settings(file)
    output, data_set = settings.get("output_type", "generate_until"), settings.get("dataset_path")
    # A metric by function is a path here (`/.../utils.f`) and is named by its last part.
    listed = [entry["metric"] for entry in settings.get("metric_list") or []] or DEFAULT_METRIC_REGISTRY[output]
    filters = [entry["name"] for entry in settings.get("filter_list") or []] or ["none"]
    source = Source(str(data_set), configuration=settings.get("dataset_name")) if data_set else None
    return Task(
        name=name,
        description=f"lm-eval task of the data set {data_set or 'named in its own code'}",
        kind="generative" if output == "generate_until" else "loglikelihood",
        folder=Path(file).parent,
        metrics=tuple(f"{metric.rpartition('.')[2]},{name}" for metric in listed for name in filters),
        chance=math.nan,
        training=None,
        num_fewshot=settings.get("num_fewshot") or 0,
        data_folders=None if source is None else source.folders,
        source=str(data_set or ""),
    )


@cache
def stock_tasks() -> dict[str, Stock]:
    """Every name that lm-eval knows."""
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0]) / "tasks"
    # The folder's time of change tells apart installations of the same version.
    stamp = f"{_SCHEMA} {version('lm_eval')} {root} {root.stat().st_mtime_ns}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = home / "adaptive-bench" / "lm_eval_tasks.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # absent or damaged: scan again
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return {name: Stock(kind, path, tuple(members)) for name, (kind, path, members) in kept["names"].items()}
    found = _scan(root)
    with suppress(EnvironmentProblem):  # if the cache cannot be written, the next command takes some seconds longer
        atomic.write_json(file, {"stamp": stamp, "names": found})
    return found


def _scan(root: Path) -> dict[str, Stock]:
    found: dict[str, Stock] = {}
    tagged: dict[str, list[str]] = {}
    # Sorted, so that the same file wins on every machine if two define a name.
    for path in sorted(map(str, root.rglob("*.yaml"))):
        names, tags = _keys(path)
        kind: Literal["task", "group"] = "group" if "group" in names and "class" not in names else "task"
        if (name := names.get(kind)) is not None and name not in found:
            found[name] = Stock(kind, path)
            for tag in tags if kind == "task" else ():
                tagged.setdefault(tag, []).append(name)
    # A task or group wins over a tag of the same name.
    return {tag: Stock("tag", None, tuple(sorted(members))) for tag, members in tagged.items()} | found


@lru_cache(maxsize=1024)  # most includes are shared by many files
def _keys(path: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Names by key, and tags, that a file defines itself or takes from the file it includes."""
    try:
        text = Path(path).read_bytes()
    except OSError:  # a missing include: lm-eval skips such a task
        return {}, ()
    names = {key.decode(): name.strip().decode() for key, name in _NAME.findall(text)}
    tags = tuple(word.decode() for _, inline, below in _TAGS.findall(text) for word in _WORD.findall(inline + below))
    if (include := names.pop("include", None)) is not None:
        base, base_tags = _keys(str(Path(path).parent / include))
        # A file's own values replace those of the file it includes, as in lm-eval.
        names, tags = base | names, tags or base_tags
    return names, tags
