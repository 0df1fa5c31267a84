"""Files that a method or a task of a plugin read while it worked. They are known afterwards only and stand in no key:
what was read is written beside the result, and compared before the result is used again.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import datasets
import huggingface_hub

from adaptive_bench import opened, registry
from adaptive_bench.closure import in_key
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.harness_data import files_of
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.store.digest import file_digest

FilesRead = dict[str, dict[str, str]]  # by plugin: digests of files by their path from its folder
_CHANGED = ""  # in place of a digest: no content that is there now
_NOT_DATA = tuple(map(Path, ("/proc", "/sys", "/dev")))
_INSTALLED = {"site-packages", "dist-packages"}
_METADATA = (".egg-info", ".dist-info")  # looked through whenever a plugin is looked for by its name


class _Plugin(NamedTuple):
    name: str
    home: Path
    code: frozenset[Path]
    known: frozenset[Path]  # in the key already


def files_read(config: RunConfig, methods: Iterable[str], tasks: Iterable[str] = ()) -> FilesRead:
    """What plugins among some methods and tasks have read in this process, the run's own files and the model's left
    out. A file that changed since has no digest.
    """
    noted = opened.opened()
    if not noted:
        return {}
    aside = (*_NOT_DATA, config.out.resolve(), Path(config.model).expanduser().resolve(), *_caches(), *_standard())
    read: FilesRead = {}
    for plugin in _plugins(methods, tasks):
        code = set(map(str, plugin.code))
        for name, one in noted.items():
            path = Path(name).resolve()
            if not set(map(os.path.realpath, one.readers)) & code or path in plugin.known or not path.is_file():
                continue
            if any(path.is_relative_to(folder) for folder in aside) or _INSTALLED & set(path.parts):
                continue
            if path.parent.name.endswith(_METADATA):
                continue
            now = _CHANGED if one.mixed or opened.stamp(name) != one.stamp else file_digest(path)
            read.setdefault(plugin.name, {})[os.path.relpath(path, plugin.home)] = now
    return read


def check_unchanged(read: FilesRead) -> None:
    """Refuse to keep a result if a file changed while a plugin was at work that had read it.

    Raises:
        EnvironmentProblem: One has.
    """
    changed = [(plugin, name) for plugin, of_plugin in read.items() for name, now in of_plugin.items() if not now]
    if changed:
        plugin, name = changed[0]
        raise EnvironmentProblem(
            f"A result is kept if the files that were read for it stayed as they were, but {name!r}, which {plugin} "
            f"reads, changed meanwhile. Give the same command again (in a notebook, start the kernel again): it reads "
            f"what is there now."
        )


def changed_since(read: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Files that plugins read for a result and that are gone or have other content now."""
    found = []
    for plugin, of_plugin in read.items():
        kind, _, name = plugin.partition(" ")
        home = _home_of_task(name) if kind == "task" else _home_of_method(name)
        for path, known in of_plugin.items():
            file = Path(os.path.normpath(home / path))
            if not file.is_file() or file_digest(file) != known:
                found.append(file)
    return found


def _plugins(methods: Iterable[str], tasks: Iterable[str]) -> Iterator[_Plugin]:
    for name in dict.fromkeys(methods):
        file = registry.file_of("methods", name)
        if file is not None and registry.is_foreign("methods", name):
            code, named = in_key(file)
            yield _Plugin(f"method {name}", _home_of_method(name), code, code | named)
    for name in dict.fromkeys(tasks):
        registered = name.partition(":")[0]
        if not registry.is_foreign_task(name):
            continue
        task, own = find_task(name), registry.file_of("tasks", registered)
        beside = [file.resolve() for file in (*files_of(task.folder), *task.other_files)]
        sources = [file for file in (*beside, *([] if own is None else [own])) if file.suffix == ".py"]
        both = [in_key(file) for file in sources]
        code = frozenset().union(*(code for code, _ in both))
        known = frozenset(beside).union(code, *(named for _, named in both))
        yield _Plugin(f"task {name}", _home_of_task(name), code, known)


def _home_of_method(name: str) -> Path:
    file = registry.file_of("methods", name)
    assert file is not None
    return file.resolve().parent


def _home_of_task(name: str) -> Path:
    return find_task(name).folder.resolve()


def _caches() -> list[Path]:
    """Where libraries keep what they fetched: files of it come and go, and are named by their content."""
    return [Path(huggingface_hub.constants.HF_HOME).resolve(), Path(datasets.config.HF_DATASETS_CACHE).resolve()]


def _standard() -> list[Path]:
    return [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
