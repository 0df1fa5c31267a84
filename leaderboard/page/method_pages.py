"""Writes a page for each method of a board: its idea and source, what it executes, and its rank on every model.

The links of all pages to repository and documentation are here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from adaptive_bench.spec import method_name

from ..frame import Board
from ..method_text import LINK, described
from ..page_samples import samples_of
from ..plain import plain
from ..row import spec_of
from ..table_cells import level_text, long

REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # environment variable, which the documentation uses too
FOLDER = "methods"
STYLE = "board.css"
_SHOWN_AT = (0.0, 15.0, 25.0)  # savings near which answers are shown, in percent
_DOCUMENTS = 2  # shown of each task
_NET = 2  # index of saved net FLOPs in a point of `samples`


@dataclass(frozen=True)
class Links:
    """Addresses; for an empty one the page has no link.

    Attributes:
        manual: Address of the documentation, absolute or relative to the board's folder.
        repository: Address of the repository, without a slash at its end; by default taken from the environment.
    """

    manual: str = ""
    repository: str = field(default_factory=lambda: os.environ.get(REPOSITORY, "").rstrip("/"))

    def of_file(self, path: str) -> str:
        """Address of a file in the repository."""
        return f"{self.repository}/blob/main/{path}" if self.repository else ""

    def of_manual(self, page: str) -> str:
        """Address of a page of the documentation, relative to a method's page, which is one folder below the board."""
        if not self.manual:
            return ""
        start = self.manual if self.manual.startswith("http") else f"../{self.manual}"
        return f"{start.rstrip('/')}/{page}/"


def page_of(label: str) -> str:
    """Path of a method's page, relative to the board. No character of a method's name has a meaning in a path."""
    return f"{FOLDER}/{method_name(label)}.html"


def method_pages(board: Board, parts: Sequence[Any], links: Links) -> dict[str, str]:
    """The methods' pages and their style sheet, by file name.

    Args:
        board: The board.
        parts: The `Part` of each model and recipe, with its `group` and `standings`.
        links: Addresses of repository and documentation.
    """
    template = template_of(source("method.html"))
    names = dict.fromkeys(method_name(row.label) for part in parts for row in part.group.board.rows)
    # Read once for all pages, since it opens every point of every run.
    samples = [(part.group.name, _samples(part.group.board)) for part in parts] if names else []
    found = {}
    for name in names:
        about = described(name)
        found[page_of(name)] = template.render(
            name=name,
            about=about,
            links=links,
            code=links.of_file(f"methods/{about.file}") if about.own else "",
            papers=[link for text in about.sources for link in LINK.findall(text)],
            manual=links.of_manual(f"methods/{name}") if about.own else "",
            standings=[one for part in parts for one in _stands(part, name)],
            executed=[one for where, some in samples for one in _executed(where, some, name)],
            answers=[one for where, some in samples for one in _answers(where, some, name)],
            entries=list(_entries(board, name)),
            style=STYLE,
            version=version("adaptive-bench"),
        )
    return found | ({f"{FOLDER}/{STYLE}": source(STYLE)} if found else {})


def template_of(text: str) -> Template:
    """The template of a page, in which every value is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["coded"] = _coded
    return environment.from_string(text)


def _coded(text: str) -> Markup:
    """The text as HTML, with what stands between backticks as code, and links as links."""
    link = Markup('<a href="{0}" rel="noopener noreferrer">{0}</a>')
    return Markup("").join(
        Markup("<code>{}</code>").format(piece)
        if at % 2
        else Markup(LINK.sub(lambda one: link.format(one[0]), escape(piece)))
        for at, piece in enumerate(text.split("`"))
    )


def _stands(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """Lines of the method and its variants on one model, at every level at which one of them was measured."""
    for standing in part.standings:
        header, lines = long(standing)
        own = [texts for line, texts in zip(standing.lines, lines, strict=True) if method_name(line.label) == name]
        if own:
            about = {"key": part.group.key, "name": part.group.name, "level": level_text(standing)}
            yield about | {"header": header, "lines": own, "of": len(standing.ranked)}


def _samples(board: Board) -> list[Mapping[str, Any]]:
    return [samples_of(folder, board.entries.get(folder)) for folder in board.folders]


def _points(samples: Sequence[Mapping[str, Any]], name: str) -> Iterator[tuple[str, str, Mapping[str, str], list[Any]]]:
    """Task, spec, right answers by document, and points; if several runs have them, those of the first."""
    seen = set()
    for place in samples:
        for task, there in place.items():
            for spec, points in there["methods"].items():
                if method_name(spec) == name and points and (task, spec) not in seen:
                    seen.add((task, spec))
                    yield task, spec, there["targets"], points


def _executed(where: str, samples: Sequence[Mapping[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """For each variant, the executed shares of its layers near 15 % of net FLOPs saved, on the first task with them."""
    shown = set()
    for task, spec, _, points in _points(samples, name):
        # Points are `[tokens, core, net, answers, sites]`, see `samples_of`.
        near = min(points, key=lambda point: abs(point[_NET] - 15))
        if spec not in shown and near[4]:
            shown.add(spec)
            layers = [[f"{100 * share:.0f}" for share in layer] for layer in near[4]]
            # The last layer on top, as models are drawn.
            yield {"where": where, "task": task, "spec": spec, "saved": f"{near[_NET]:g}", "layers": layers[::-1]}


def _answers(where: str, samples: Sequence[Mapping[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """For each task and variant, two documents with what was written near the savings `_SHOWN_AT`."""
    for task, spec, targets, points in _points(samples, name):
        near = [min(points, key=lambda point, at=at: abs(point[_NET] - at)) for at in _SHOWN_AT]  # type: ignore[misc]
        # With few points, one may be the nearest to several savings.
        some = [point for place, point in enumerate(near) if point not in near[:place]]
        documents = list(some[0][3])[:_DOCUMENTS]
        shown: list[dict[str, Any]] = [
            {"target": targets.get(key, ""), "written": [
                {"saved": f"{point[_NET]:g}", "text": point[3][key][0], "right": point[3][key][1]}
                for point in some if key in point[3]
            ]} for key in documents
        ]  # fmt: skip
        if any(one["text"].strip() for document in shown for one in document["written"]):
            yield {"where": where, "task": task, "spec": spec, "documents": shown}


def _entries(board: Board, name: str) -> Iterator[dict[str, Any]]:
    for folder, entry in board.entries.items():
        specs = {spec_of(row) for row in entry.rows if method_name(str(row["method"])) == name}
        if specs:
            external = sorted({said for spec in specs if (said := entry.external(spec)) is not None})
            about = {"about": entry.about.shown(), "said": entry.status_text()}
            yield {"run": plain(folder.name, 100), "external": external} | about


def source(name: str) -> str:
    """Text of a file in this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
