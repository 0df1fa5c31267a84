"""A hook for mkdocs that makes equations and the notebook part of the pages.

All of this happens while the site is built, so that pages need no other servers and no scripts for it.
"""

from __future__ import annotations

import json
import os
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation

from adaptive_bench import __version__

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

NOTEBOOK = "first_steps.ipynb"
REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # environment variable with the source's address, for the foot of each page
_NOTEBOOK_PAGE = "first_steps.md"
_BOARD = "board/index.html"  # `leaderboard build` puts it there, see the Makefile
# What pymdownx.arithmatex makes with `generic: true`: \(...\) in a line, \[...\] in a block of its own.
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the version, and a link to the source if its address is known."""
    config.copyright = f"adaptive-bench {__version__}, MIT licence"
    if address := os.environ.get(REPOSITORY):
        config.extra["social"] = [{"icon": "fontawesome/brands/git-alt", "link": address, "name": "Source code"}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebook as a page."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text(encoding="utf-8"))
    files.append(File.generated(config, _NOTEBOOK_PAGE, content=page_of(notebook)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Link to the board, which is not a page of this site but lies beside it."""
    nav.items.insert(1, Link("Board", _BOARD))  # second, after the start page
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the notebook lead to its page; in the repository they lead to the file."""
    is_notebook = page.file.src_uri == _NOTEBOOK_PAGE
    return markdown if is_notebook else markdown.replace(f"]({NOTEBOOK})", f"]({_NOTEBOOK_PAGE})")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace equations by MathML."""
    return rendered(html)


def rendered(html: str) -> str:
    """A page with its equations as MathML, which browsers show without scripts."""
    return _MATH.sub(lambda found: convert(unescape(found[3]), display="inline" if found[2] == "(" else "block"), html)


def page_of(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its texts, and its code in blocks. The notebook stores no results."""
    parts = [f"[Download this page as a notebook]({NOTEBOOK})"]
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *others = parts[1:]  # the first cell is the page's title
    return "\n\n".join([title, parts[0], *others]) + "\n"
