"""Files of one kind, such as the documents of one task, as streams of bytes: one part of an archive."""

from __future__ import annotations

import itertools
import json
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .forms import Form, put_together, taken_apart
from .literals import KINDS, MOST_VALUES, Stream, written
from .prediction import NEW, Rule, best_rule, recalled

LARGEST_FORMS_BYTES: Final = 8_000_000  # of what is read as JSON: a list in it takes forty times its two letters
_FORMS, _COLUMNS, _LINES, _RANKS = "forms", "columns", "lines", "ranks"
STREAMS: Final = (_FORMS, _COLUMNS, _LINES, _RANKS, *KINDS)
_UNSIGNED: Final = "I"  # of `array`: 4 bytes

Part = Mapping[str, bytes]
_Row = tuple[int, int, list[str]]  # line, file, values


def arranged(texts: Sequence[tuple[str, bool]]) -> dict[str, bytes]:
    """Texts as streams by name, for `restored`.

    Args:
        texts: Each with whether its lines are rows. One that has none is a row itself.
    """
    rows: dict[tuple[bool, Form], list[_Row]] = {}
    numbers: dict[tuple[bool, Form], int] = {}
    lines = array(_UNSIGNED)
    for file, (text, has_rows) in enumerate(texts):
        pieces = text.split("\n") if has_rows else [text]
        lines.append(len(pieces))
        for line, piece in enumerate(pieces):
            form, values = taken_apart(piece)
            lines.append(numbers.setdefault((has_rows, form), len(numbers)))
            rows.setdefault((has_rows, form), []).append((line, file, values))
    streams: dict[str, list[bytes]] = {name: [] for name in (_RANKS, *KINDS)}
    columns = [_columns(has_rows, found, streams) for (has_rows, _), found in rows.items()]
    return {
        _FORMS: _json([[has_rows, *form] for has_rows, form in rows]),
        _COLUMNS: _json(columns),
        _LINES: _little(lines).tobytes(),
        **{name: b"".join(found) for name, found in streams.items()},
    }


def _columns(has_rows: bool, rows: list[_Row], streams: Mapping[str, list[bytes]]) -> list[list[Any]]:
    """How each column of a form is predicted, and of which kind the others are; those go to the streams."""
    rows.sort(key=lambda row: row[:2])
    lines = [line for line, _, _ in rows]
    known: dict[int, Sequence[str]] = {}
    notes = []
    for place in _order(has_rows, len(rows[0][2])):
        column = [values[place] for _, _, values in rows]
        rule, ranks = best_rule(column, lines, known)
        kind, content = written([value for value, rank in zip(column, ranks, strict=True) if rank == NEW])
        streams[_RANKS].append(ranks)
        streams[kind].append(content)
        known[place] = column
        # The distance, as columns beside each other follow from those as far away.
        of = None if rule.of is None else rule.of - place
        notes.append([KINDS.index(kind), rule.name, *(() if of is None else (of, rule.factor))])
    return notes


def restored(part: Part) -> Iterator[tuple[int, Iterator[str]]]:
    """The texts, each as its length and its lines, without their ends: whoever reads may refuse it before it is there.

    Raises:
        ValueError: The streams do not belong together, or have more values than one part may.
    """
    try:
        yield from _restored(part)
    # Of a value that is not there a generator makes a RuntimeError, and so is what is nested too deeply.
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"its columns do not fit together ({type(error).__name__}: {error})") from error


def _restored(part: Part) -> Iterator[tuple[int, Iterator[str]]]:
    if max(len(part[_FORMS]), len(part[_COLUMNS])) > LARGEST_FORMS_BYTES:
        raise ValueError(f"the forms of a part have at most {LARGEST_FORMS_BYTES} bytes")
    if max(len(part[_RANKS]), len(part[_LINES]) // array(_UNSIGNED).itemsize) > MOST_VALUES:
        raise ValueError(f"a part has at most {MOST_VALUES} lines and values")
    forms = [(bool(has_rows), tuple(map(str, pieces))) for has_rows, *pieces in json.loads(part[_FORMS])]
    files = list(_files(part[_LINES], len(forms)))
    if not files:
        raise ValueError("a part has a file")
    places: list[list[tuple[int, int]]] = [[] for _ in forms]
    for file, rows in enumerate(files):
        for line, number in enumerate(rows):
            places[number].append((line, file))
    streams = {name: Stream(name, part[name]) for name in KINDS}
    ranks = _Ranks(part[_RANKS])
    values: list[Iterator[Sequence[str]]] = []
    notes = json.loads(part[_COLUMNS])
    for (has_rows, form), found, note in zip(forms, places, notes, strict=True):
        found.sort()
        table = _table(has_rows, form, note, [line for line, _ in found], streams, ranks)
        # Rows were sorted by line, files take theirs in turn.
        of_row = dict(zip(found, zip(*table, strict=True) if table else [()] * len(found), strict=True))
        values.append(iter([of_row[place] for place in sorted(found, key=lambda place: (place[1], place[0]))]))
    ranks.check_end()
    for stream in streams.values():
        stream.check_end()
    for rows in files:
        pieces: list[tuple[Form, Sequence[str]]] = [(forms[number][1], next(values[number])) for number in rows]
        length = sum(sum(map(len, form)) + sum(map(len, row)) for form, row in pieces) + len(pieces) - 1
        yield length, itertools.starmap(put_together, pieces)


def _table(
    has_rows: bool,
    form: Form,
    notes: Sequence[Any],
    lines: Sequence[int],
    streams: Mapping[str, Stream],
    ranks: _Ranks,
) -> list[list[str]]:
    """The columns of a form, in their order."""
    known: dict[int, Sequence[str]] = {}
    for place, (kind, name, *of) in zip(_order(has_rows, len(form) - 1), notes, strict=True):
        rule = Rule(name, place + of[0], float(of[1])) if of else Rule(name)
        found = ranks.take(len(lines))
        known[place] = recalled(rule, found, streams[KINDS[kind]].take(found.count(NEW)), lines, known)
    return [list(known[place]) for place in range(len(form) - 1)]


class _Ranks:
    """Those of all columns, to be taken in their order."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        found = self._content[self._at : self._at + count]
        self._at += count
        if len(found) < count:
            raise ValueError("there are more values than are told of")
        return found

    def check_end(self) -> None:
        if self._at != len(self._content):
            raise ValueError("there is more told of values than there are")


def _order(has_rows: bool, columns: int) -> range:
    """In which columns are written: of records that are one row sums stand before their terms, and follow from them."""
    return range(columns) if has_rows else range(columns - 1, -1, -1)


def _files(content: bytes, forms: int) -> Iterator[array[int]]:
    """The forms of the lines of each file."""
    numbers = array(_UNSIGNED)
    numbers.frombytes(content)
    _little(numbers)
    at = 0
    while at < len(numbers):
        end = at + 1 + numbers[at]
        found = numbers[at + 1 : end]
        if end > len(numbers) or not found or max(found) >= forms:
            raise ValueError("lines are of forms that the part has")
        yield found
        at = end


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
