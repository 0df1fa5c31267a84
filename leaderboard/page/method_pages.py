"""Writes a page for each method of a board: its idea and source, its rank on every model, what it executes and writes.

The links of all pages to repository and documentation are here too.
"""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.spec import method_name
from adaptive_bench.store.measured import MeasuredPoint
from adaptive_bench.store.records import DialEvaluationRecord

from ..boards import Board, Source
from ..entry import Entry
from ..list_text import level_text, long
from ..plain import block, plain
from ..provenance import manifest_in
from ..row import spec_of

REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # environment variable, which the documentation uses too
FOLDER = "methods"
STYLE = "board.css"
_SHOWN_AT = (0.0, 15.0, 25.0)  # savings near which answers are shown, in percent
_DOCUMENTS = 2  # shown of each task
_LONGEST_ANSWER = 240  # characters
_LABEL = re.compile(r"^(Idea|Papers?|Source, equations, deviations|Source|Equations|Deviations[^:\n]*):", re.MULTILINE)
# Ends in a letter, a digit or a slash, so that the full stop after a link is not part of it.
LINK = re.compile(r"https://[A-Za-z0-9.\-]+\.[A-Za-z]{2,}/[A-Za-z0-9._~%/\-]*[A-Za-z0-9/]", re.ASCII)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SENTENCES, _LONGEST = 3, 3000
_Measured = tuple[str, str, str, Sequence[MeasuredPoint]]  # group, task, spec, points


@dataclass(frozen=True)
class Links:
    """Addresses; for an empty one the page has no link.

    Attributes:
        manual: Address of the documentation, absolute or relative to the board's folder.
        repository: Address of the repository, without a slash at its end; by default taken from the environment.
    """

    manual: str = ""
    repository: str = field(default_factory=lambda: os.environ.get(REPOSITORY, "").rstrip("/"))


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
    # A method's page is one folder below the board.
    manual = links.manual if links.manual.startswith("http") else f"../{links.manual}"
    names = dict.fromkeys(method_name(row.label) for part in parts for row in part.group.board.rows)
    # Read once for all pages, since it opens every point of every run.
    measured: list[_Measured] = [
        (part.group.name, task, spec, points)
        for part in parts
        for task, there in samples_of(part.group.board.sources).items()
        for spec, points in there.items()
        if points
    ]
    found = {}
    for name in names:
        about, own = described(name), [one for one in measured if method_name(one[2]) == name]
        found[page_of(name)] = template.render(
            name=name,
            about=about,
            code=f"{links.repository}/blob/main/methods/{about.file}" if about.own and links.repository else "",
            papers=[link for text in about.sources for link in LINK.findall(text)],
            manual=f"{manual.rstrip('/')}/methods/{name}/" if about.own and links.manual else "",
            standings=[one for part in parts for one in _stands(part, name)],
            executed=_executed(own),
            answers=list(_answers(own)),
            entries=list(_entries(board, name)),
            style=STYLE,
            version=version("adaptive-bench"),
        )
    return found | ({f"{FOLDER}/{STYLE}": source(STYLE)} if found else {})


def template_of(text: str) -> Template:
    """The template of a page, in which every value is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"coded": _coded, "breakable": _breakable}
    return environment.from_string(text)


def _breakable(text: str) -> Markup:
    """The text as HTML, in which a long name of a method may be broken between its parameters."""
    return Markup(re.sub(r"(?<=[\[,])(?=[a-z])", "<wbr>", str(escape(text))))


def _coded(text: str) -> Markup:
    """The text as HTML, with what stands between backticks as code, and links as links."""
    link = Markup('<a href="{0}" rel="noopener noreferrer">{0}</a>')
    return Markup("").join(
        Markup("<code>{}</code>").format(piece)
        if at % 2
        else Markup(LINK.sub(lambda one: link.format(one[0]), escape(piece)))
        for at, piece in enumerate(text.split("`"))
    )


@dataclass(frozen=True)
class Described:
    """The description of a method.

    Attributes:
        title: First line of the docstring.
        idea: At most three sentences.
        sources: The papers or sources that it names, one text each.
        deviations: Deviations from the paper, one text each.
        file: Name of the method's file.
        own: Whether the method belongs to this package.
    """

    title: str = ""
    idea: str = ""
    sources: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    file: str = ""
    own: bool = False


def described(name: str) -> Described:
    """The description of a method, without importing its file; empty if the method is not registered here."""
    file = registry.file_of("methods", name) if name in registry.names("methods") else None
    if file is None:
        return Described()
    try:
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    except (OSError, ValueError, SyntaxError, RecursionError):  # the page works without a description
        text = ""
    return _of_docstring(text, file.name, not registry.is_foreign("methods", name))


def _of_docstring(text: str, file: str, own: bool) -> Described:
    title, _, rest = text.partition("\n\n")
    # With one group in the pattern: the text before the first label, then label and text in turn.
    _, *parts = _LABEL.split(rest)
    labelled = dict(zip(parts[::2], parts[1::2], strict=True))
    # A text ends at the next label or after its paragraph; deviations may be a list of paragraphs.
    first = {label: _one_line(body.strip().partition("\n\n")[0]) for label, body in labelled.items()}
    return Described(
        plain(title, _LONGEST),
        " ".join(_SENTENCE.split(first.get("Idea", ""))[:_SENTENCES]),
        tuple(first[label] for label in ("Paper", "Papers", "Source") if first.get(label)),
        tuple(_items(next((body for label, body in labelled.items() if label.startswith("Deviations")), ""))),
        plain(file, 100),
        own,
    )


def _items(text: str) -> Iterator[str]:
    """The items of a list, or the whole text as one item."""
    for item in re.split(r"^\* ", textwrap.dedent(text.strip()), flags=re.MULTILINE):
        known = _one_line(item.split("\n\n")[0]).rstrip(";")
        if known and known != "none.":
            yield known


def _one_line(text: str) -> str:
    return plain(" ".join(text.split()), _LONGEST).strip()


def _stands(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """Lines of the method and its variants on one model, at every level at which one of them was measured."""
    for standing in part.standings:
        header, lines = long(standing)
        own = [texts for line, texts in zip(standing.lines, lines, strict=True) if method_name(line.label) == name]
        if own:
            about = {"key": part.group.key, "name": part.group.name, "level": level_text(standing)}
            yield about | {"header": header, "lines": own, "of": len(standing.ranked)}


def samples_of(sources: Iterable[Source]) -> dict[str, dict[str, list[MeasuredPoint]]]:
    """By task and spec, the measured points of one seed, rising in net FLOPs saved, with the first texts."""
    found: dict[str, dict[str, list[MeasuredPoint]]] = {}
    for one in sources:
        for task, spec, points in _of_run(one.folder) if one.entry is None else _of_entry(one.entry):
            there = found.setdefault(plain(task, 200), {})
            if not there.get(name := plain(spec, 200)):  # else this is another seed of it
                there[name] = sorted(points, key=_saved)
    return found


def _of_run(folder: Path) -> Iterator[tuple[str, str, Iterable[MeasuredPoint]]]:
    listed = manifest_in(folder)
    for one in listed.evaluations:
        record = DialEvaluationRecord(listed.out / "records" / one.record, one.asked or None)
        if one.split == "test" and not one.variant and record.folder.is_dir():  # neither targets nor controls
            yield one.task, one.method, _points(record)


def _points(record: DialEvaluationRecord) -> Iterator[MeasuredPoint]:
    with suppress(EnvironmentProblem):  # damaged points are left out: no score depends on them
        for asked, point in record.points().items():
            yield MeasuredPoint.of(asked, point, (), record.samples(asked, _DOCUMENTS), _DOCUMENTS)


def _of_entry(entry: Entry) -> Iterator[tuple[str, str, Iterable[MeasuredPoint]]]:
    return (
        (one.task, one.method, one.points) for one in entry.measured.sweeps if one.split == "test" and not one.variant
    )


def _saved(point: MeasuredPoint) -> float:
    """Saved net FLOPs in percent."""
    return round(100 * point.savings.get("net", 0.0), 1)


def _nearest(points: Sequence[MeasuredPoint], percent: float) -> MeasuredPoint:
    return min(points, key=lambda point: abs(_saved(point) - percent))


def _executed(measured: Sequence[_Measured]) -> list[dict[str, Any]]:
    """For each variant, the executed shares of its layers near 15 % of net FLOPs saved, on the first task with them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for where, task, spec, points in measured:
        near = _nearest(points, 15.0)
        if (where, spec) not in found and near.attention_executed:
            shares = zip(near.attention_executed, near.mlp_executed, strict=True)
            # The last layer on top, as models are drawn.
            layers = [[f"{100 * share:.0f}" for share in layer] for layer in shares][::-1]
            about = {"where": where, "task": task, "spec": spec}
            found[where, spec] = about | {"saved": f"{_saved(near):g}", "layers": layers}
    return list(found.values())


def _answers(measured: Sequence[_Measured]) -> Iterator[dict[str, Any]]:
    """For each task and variant, two documents with what was written near the savings `_SHOWN_AT`."""
    for where, task, spec, points in measured:
        # By saving, since one of few points may be the nearest to several savings.
        near = {_saved(point): point for point in (_nearest(points, at) for at in _SHOWN_AT)}
        documents: list[dict[str, Any]] = [
            {
                "target": block(first.target, _LONGEST_ANSWER),
                "written": [
                    {"saved": f"{saved:g}", "text": block(text.written, _LONGEST_ANSWER), "right": text.correct}
                    for saved, point in near.items()
                    for text in point.texts
                    if text.document == first.document
                ],
            }
            for first in next(iter(near.values())).texts[:_DOCUMENTS]
        ]
        # What a log-likelihood task has as its answer is a number.
        writes = any("decode" in point.flops for point in near.values())
        if writes and any(one["text"].strip() for document in documents for one in document["written"]):
            yield {"where": where, "task": task, "spec": spec, "documents": documents}


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
