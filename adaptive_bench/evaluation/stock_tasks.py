"""Lists the tasks of lm-eval by name, without importing lm-eval and without parsing its 14,000 files.

A task's YAML file has its name on a separate line. These lines are scanned once per version of lm-eval, and the names
are kept in the user's cache. A file is parsed only when its task is used.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line
from adaptive_bench.store import atomic

_KEY = rb"""^["']?(%s)["']?[ \t]*:[ \t]*"""
_NAME = re.compile(
    _KEY % b"task|group|class|include" + rb"""["']?([^"'\s#\[\]{}][^"'\r\n#]*?)["']?[ \t\r]*(?:#.*)?$""", re.M
)
# In brackets or as a single name on the line of the key, or as a list below it.
_TAGS = re.compile(_KEY % b"tag" + rb"""(\[[^\]]*\]|[^\r\n]*)((?:\s*\n[ \t]*-[^\r\n]*)*)""", re.M)
_WORD = re.compile(rb"\w[\w.+\-]*")
_SCHEMA = 1  # of the file in the cache

Kind = Literal["task", "group", "tag"]


@dataclass(frozen=True)
class Stock:
    """A task of lm-eval, a group with its own file, or a tag (without a file) with the tasks that carry it."""

    kind: Kind
    file: str | None = None
    members: tuple[str, ...] = ()


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
    plain = {name: [stock.kind, stock.file, stock.members] for name, stock in found.items()}
    with suppress(EnvironmentProblem):  # if the cache cannot be written, the next command takes some seconds longer
        atomic.write_json(file, {"stamp": stamp, "names": plain})
    return found


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


def _scan(root: Path) -> dict[str, Stock]:
    found: dict[str, Stock] = {}
    tagged: dict[str, list[str]] = {}
    # Sorted, so that the same file wins on every machine if two define a name.
    for path in sorted(map(str, root.rglob("*.yaml"))):
        names, tags = _keys(path)
        kind: Kind = "group" if "group" in names and "class" not in names else "task"
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
