"""A text of JSON as a form and the values in it: `{"loss": 0.5}` is the form `{"loss": ` and `}` with the value `0.5`.

Nothing is parsed: whatever the text is, its form and values put together are that text again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

_OPEN = r'"(?:[^"\\\n]|\\.)*+'
# Keys belong to the form, and so does a string that no quote ends, so that every value stays on its line.
_VALUE = re.compile(rf'{_OPEN}"\s*:|({_OPEN}"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|{_OPEN}', re.ASCII)

Form = tuple[str, ...]


def taken_apart(text: str) -> tuple[Form, list[str]]:
    """The form, which has one piece more than there are values, and the values."""
    pieces: list[str] = []
    values: list[str] = []
    end = 0
    for found in _VALUE.finditer(text):
        if found[1] is not None:
            pieces.append(text[end : found.start()])
            values.append(found[1])
            end = found.end()
    return (*pieces, text[end:]), values


def put_together(form: Form, values: Sequence[str]) -> str:
    """The text that `taken_apart` took apart."""
    return form[0] + "".join(chain.from_iterable(zip(values, form[1:], strict=True)))
