"""Renders the page of `adaptive-bench inspect`: one file that opens from disk and makes no network requests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from ..page import digest, embedded
from ..page.method_pages import source as of_the_board
from ..page.method_pages import template_of

_SCRIPTS = ("elements.js", "data.js", "text.js", "tables.js", "main.js")


def render(record: Mapping[str, Any]) -> str:
    """The page of a record (`adaptive_bench.inspection`). All texts of the record enter as data, never as markup."""
    style = of_the_board("board.css") + _source("inspection.css")
    script = "\n".join(map(_source, _SCRIPTS))
    return template_of(_source("inspection.html")).render(
        record=record,
        style=Markup(style),
        script=Markup(script),
        style_sha256=digest(style),
        script_sha256=digest(script),
        version=version("adaptive-bench"),
        data=embedded(record),
    )


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
