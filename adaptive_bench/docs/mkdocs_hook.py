"""A hook for mkdocs that makes equations, figures and the notebook part of the pages.

All of this happens while the site is built, so that pages need no other servers and no scripts for it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
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

# Palettes of the figures, the SVG files of `docs/figures`. Every colour that text is written in has a contrast to
# `paper` of at least 4.5 (WCAG 1.4.3).
_NAMES = ("paper", "ink", "faint", "rule", "accent", "second", "soft", "warm")
_LIGHT = ("#ffffff", "#1f2937", "#5b6472", "#c4cad4", "#3949ab", "#a14a05", "#dfe3f6", "#fbe5cc")
_DARK = ("#1e2129", "#e5e7eb", "#a8b0be", "#4b5365", "#a5b0ff", "#f3b25f", "#343c68", "#57411f")
LIGHT, DARK = dict(zip(_NAMES, _LIGHT, strict=True)), dict(zip(_NAMES, _DARK, strict=True))
NOTEBOOK = "first_steps.ipynb"
STYLE = "figures.css"
REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # environment variable with the source's address, for the foot of each page
_NOTEBOOK_PAGE = "first_steps.md"
_BOARD = "board/index.html"  # `leaderboard build` puts it there, see the Makefile
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_FIGURE = re.compile(r'<img alt="([^"]*)" src="[^"]*?figures/([\w-]+\.svg)"\s*/?>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the version, a link to the source if its address is known, and the figures' style sheet."""
    config.copyright = f"adaptive-bench {__version__}, MIT licence"
    if address := os.environ.get(REPOSITORY):
        config.extra["social"] = [{"icon": "fontawesome/brands/git-alt", "link": address, "name": "Source code"}]
    config.extra_css = [*config.extra_css, STYLE]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebook as a page, and the style sheet of the figures."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text(encoding="utf-8"))
    files.append(File.generated(config, _NOTEBOOK_PAGE, content=page_of(notebook)))
    files.append(File.generated(config, STYLE, content=style()))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Link to the board, which is not a page of this site but lies beside it."""
    nav.items.insert(1, Link("Board", _BOARD))
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the notebook lead to its page; in the repository they lead to the file."""
    is_notebook = page.file.src_uri == _NOTEBOOK_PAGE
    return markdown if is_notebook else markdown.replace(f"]({NOTEBOOK})", f"]({_NOTEBOOK_PAGE})")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace equations by MathML, and images of figures by the figures themselves, in the page's colours."""
    folder = Path(config.docs_dir) / "figures"
    return _FIGURE.sub(lambda found: inlined((folder / found[2]).read_text(encoding="utf-8"), found[1]), rendered(html))


def rendered(html: str) -> str:
    """A page with its equations as MathML, which browsers show without scripts."""
    return _MATH.sub(lambda found: convert(unescape(found[3]), display="inline" if found[2] == "(" else "block"), html)


def inlined(svg: str, words: str) -> str:
    """A figure as part of a page.

    Args:
        svg: A file of `docs/figures`.
        words: The alternative text, already escaped.
    """
    svg = re.sub(r"<title>.*?</title>\n|<style>.*?</style>\n|<rect class=\"paper\".*?/>\n", "", svg)
    return f'<span class="figure">{svg.replace("<svg ", f"""<svg aria-label="{words}" """, 1).strip()}</span>'


def style() -> str:
    """Style sheet with the figures' colours for both schemes of the theme."""
    sheets = []
    for scheme, palette in (("default", LIGHT), ("slate", DARK)):
        on_page = {**palette, "paper": "var(--md-default-bg-color)"}
        sheets.append(f'[data-md-color-scheme="{scheme}"] .drawing {{{colours(on_page)}}}')
    sheets += [".figure {display: block}", ".drawing {width: 100%; max-width: 30rem}"]
    return "\n".join(sheets) + "\n"


def colours(palette: Mapping[str, str]) -> str:
    """A palette as CSS declarations."""
    return "".join(f"--drawing-{name}:{value};" for name, value in palette.items())


def page_of(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its texts, and its code in blocks. The notebook stores no results."""
    parts = [f"[Download this page as a notebook]({NOTEBOOK})"]
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *others = parts[1:]
    return "\n\n".join([title, parts[0], *others]) + "\n"
