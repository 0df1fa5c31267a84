"""Which files code of a plugin reads: a result depends on them, though neither its source nor a key names them.

Python tells of every file that it opens. From the first plugin on, a file opened for reading is noted with every file
of foreign code on the stack, and with what told its content from another one then. Without a plugin nothing looks.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from types import FrameType
from typing import Any

INSTALLED = {"site-packages", "dist-packages"}
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - compared with texts
_RUNS = os.path.join(_OWN, "runs") + os.sep  # noqa: PTH118 - what is below it on the stack is not the plugin's work
_WRITES = os.O_WRONLY | os.O_RDWR
Stamp = tuple[int, int, int, int]


@dataclass
class Opened:
    """A file that foreign code had open for reading.

    Attributes:
        stamp: Of the file when it was last opened.
        readers: Files of the code that was at work then.
        mixed: Whether it changed between two readings since `begin`.
    """

    stamp: Stamp
    readers: set[str] = field(default_factory=set)
    mixed: bool = False


_installed = False
_packages: set[str] = set()  # of plugins among the site packages
_opened: dict[str, Opened] = {}
_written: set[str] = set()


def watch(path: str) -> None:
    """From now on note what code reads that comes from a plugin; `path` is a file or a folder of one."""
    global _installed
    _packages.add(path)
    _is_foreign.cache_clear()
    if not _installed:
        _installed = True
        sys.addaudithook(_look)  # for as long as the process lives


def begin() -> None:
    """A piece of work begins: what changed before is its own business no more."""
    for one in _opened.values():
        one.mixed = False


def opened() -> dict[str, Opened]:
    """What was noted so far by path; not what plugins wrote themselves while a run had them at work."""
    return {path: one for path, one in list(_opened.items()) if path not in _written}


def stamp(path: str) -> Stamp:
    """What tells the content of a file from another one without reading it."""
    found = os.stat(path)  # noqa: PTH116 - for each file that is opened
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _look(event: str, values: tuple[Any, ...]) -> None:
    if event == "os.rename":
        if all(_foreign_code()):
            _written.add(_absolute(values[1]))
        return
    if event != "open" or not isinstance(values[0], str | bytes | os.PathLike) or not isinstance(values[2], int):
        return
    readers, in_run = _foreign_code()
    if values[2] & _WRITES:
        if readers and in_run:
            _written.add(_absolute(values[0]))
    elif readers:
        path = _source(_absolute(values[0]))
        try:
            now = stamp(path)
        except OSError:  # the program that opens it is told so
            return
        known = _opened.setdefault(path, Opened(now))
        known.mixed |= known.stamp != now
        known.stamp = now
        known.readers |= readers


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - looks at no file, which would be an event again


def _source(path: str) -> str:
    """Of compiled Python its source, whose time stands in it."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:  # it lies where compiled files do not
        return path


def _foreign_code() -> tuple[set[str], bool]:
    """Files of foreign code on the stack, down to where a run gives it work; and whether one does."""
    found: set[str] = set()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_RUNS):
            return found, True
        if _is_foreign(name):
            found.add(name)
        frame = frame.f_back
    return found, False


@cache
def _is_foreign(name: str) -> bool:
    if name.startswith(("<", _OWN)):
        return False
    if any(name == known or name.startswith(known + os.sep) for known in _packages):
        return True
    return not name.startswith(_STANDARD) and INSTALLED.isdisjoint(PurePath(name).parts)
