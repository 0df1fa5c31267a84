"""Generates a page for each method from its code; `python -m adaptive_bench.docs docs` writes the pages.

A page has the docstring of the method's file, its parameters with defaults and sources, its dial, and what the
conformance suite found out about it. Nothing on a page is written by hand, so nothing can be out of date.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from tabulate import tabulate

from adaptive_bench import registry
from adaptive_bench.backbone.family import find_family
from adaptive_bench.capabilities import CAPABILITIES, stored_matrix
from adaptive_bench.method import Method, method_class
from adaptive_bench.spec import MethodSpec

_HEAD = "<!-- Written by `python -m adaptive_bench.docs docs`; change the method's file instead. -->\n\n"
_LEFT_OUT = "Looking for another one? [Methods that are not here, and why](../methods_left_out.md)."
_LABEL = re.compile(r"^(Idea|Papers?|Source|Equations|Routed|In both|Deviations[^:]*):", re.MULTILINE)
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}  # keys of a JSON schema


def pages() -> dict[str, str]:
    """Markdown of the pages by file name: one for each method of this distribution, and an index."""
    methods = {
        name: method_class(MethodSpec(name))
        for name in registry.names("methods")
        if not registry.is_foreign("methods", name)
    }
    words = "".join(f"- **{capability.title}**: {capability.meaning}\n" for capability in CAPABILITIES)
    families = ", ".join(f"`{family}`" for family in registry.names("families") if find_family(family).norm_after)
    scale = f"A scale multiplies what a branch or layer adds, after its own norm where there is one ({families})."
    index = [{"method": f"[`{name}`]({name}.md)", "what it is": _first_line(found)} for name, found in methods.items()]
    told = [f"{_HEAD}# Methods", _table(index), _LEFT_OUT, "## What the words mean", f"{words}\n{scale}\n"]
    return {f"{name}.md": method_page(name, found) for name, found in methods.items()} | {
        "README.md": "\n\n".join(told)
    }


def method_page(name: str, method: type[Method]) -> str:
    """The page of one method."""
    title, _, text = (inspect.getdoc(inspect.getmodule(method)) or "").partition("\n\n")
    sections = [
        f"{_HEAD}# `{name}`\n\n{_escaped(title)}",
        _prose(text),
        f"## Before training\n\n{_start(method)}",
        f"## Dial\n\n{_first_line(method)}",
        f"## Parameters\n\n{_parameters(name, method)}",
        _capabilities(name),
    ]
    return "\n\n".join(section.strip() for section in sections if section.strip()) + "\n"


def _parameters(name: str, method: type[Method]) -> str:
    properties: dict[str, Any] = method.Config.model_json_schema().get("properties", {})
    rows = [
        {
            "parameter": f"`{parameter}`",
            "default": "none" if schema.get("default") is None else f"`{_value(schema['default'])}`",
            "values": _values(schema),
            "what it is, and where the default comes from": _escaped(schema.get("description", "")),
        }
        for parameter, schema in properties.items()
    ]
    if not rows:
        return "None."
    told = [f"{key}={_value(one['default'])}" for key, one in properties.items() if one.get("default") is not None]
    example = f"For example `{name}[{told[0]}]`.\n\n" if told else ""
    return example + _table(rows)


def _values(schema: dict[str, Any]) -> str:
    # An optional parameter is `anyOf` its type and `null`; any other one is its own only part.
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    choices = [value for part in parts for value in part.get("enum", [])]
    if choices:
        return ", ".join(f"`{_value(value)}`" for value in choices)
    bounds = [f"{sign} {parts[0][key]:g}" for key, sign in _BOUNDS.items() if key in parts[0]]
    return ", ".join([str(parts[0]["type"]), *bounds])


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _start(method: type[Method]) -> str:
    change = method.initial_change(method.Config())
    if change is None:
        return "It does not change a pretrained model until it is trained or its dial is set to skip."
    changes = (
        "Attached to a pretrained model, it changes the model even if nothing is skipped"
        if change.bound
        else "Attached to a pretrained model, it changes nothing unless tokens skip; training skips some from the start"
    )
    amounts = []
    if change.bound:
        amounts += [f"The change of a logit has a standard deviation of at most {change.bound:.0%} of the logits' own."]
    if change.skipped:
        amounts += [f"The first training step skips up to {change.skipped:.0%} of the token-branches that may skip."]
    return " ".join([f"{changes}: {_escaped(change.reason)}.", *amounts])


def _capabilities(name: str) -> str:
    """What was measured on a method's first spec, and how its other specs differ; equal specs are listed together."""
    specs: dict[tuple[str, ...], list[str]] = {}
    for spec, row in stored_matrix(name).items():
        found = tuple(row.get(capability.key, "-") for capability in CAPABILITIES)
        specs.setdefault(found, []).append(f"`{spec}`")
    if not specs:
        return ""
    titles = [capability.title for capability in CAPABILITIES]
    first, (leader, *_) = next(iter(specs.items()))
    lines = []
    for found, some in specs.items():
        shown = zip(titles, found, first, strict=True)
        # The first row in full, the others only where they differ from it.
        new = {title: value for title, value, usual in shown if found is first or value != usual}
        told = [f"{title} {value}" for title, value in new.items() if value not in ("yes", "no")]
        for answer in ("yes", "no"):
            alike = [title for title, value in new.items() if value == answer]
            told += [f"{answer}: {', '.join(alike)}"] if alike else []
        lines.append(f"- {', '.join(some)}: {'' if found is first else f'as {leader}, but '}{'; '.join(told)}")
    said = "Measured by `adaptive-bench check`; [what the words mean](README.md#what-the-words-mean)."
    return "\n".join([f"## What it can do\n\n{said}\n", *lines])


def _prose(text: str) -> str:
    """A docstring as Markdown, with bold labels and untouched formulas."""
    text = re.sub(r"\n {4}", "\n", text)  # Markdown would read indented continuation lines as code
    text = _LABEL.sub(lambda label: f"\n**{label[1]}:**", _escaped(text))  # every label begins a paragraph
    text = re.sub(r":\*\*\n(?=\* )", ":**\n\n", text)
    return re.sub(r"\n{3,}", "\n\n", text)


_AS_IT_IS = re.compile(r"(`[^`]*`|\$[^$]+\$)")  # code and equations
_SIGN = re.compile(r"(?<!^)(?<!\n)\*|[_<|&]")  # a star that begins a line stays: it is a list item
_ENTITIES = {"<": "&lt;", "|": "&#124;", "&": "&amp;"}  # a backslash does not escape these everywhere


def _escaped(text: str) -> str:
    """Text with Markdown's signs escaped, except in code and equations, at list items, and in links."""
    parts = _AS_IT_IS.split(text)
    for index in range(0, len(parts), 2):
        # Splitting by a group puts what matched at odd places: code and equations above, links here.
        pieces = re.split(r"(https?://[^\s,]+[^\s,.])", parts[index])
        pieces[::2] = [_SIGN.sub(lambda sign: _ENTITIES.get(sign[0], "\\" + sign[0]), piece) for piece in pieces[::2]]
        pieces[1::2] = [f"<{link}>" for link in pieces[1::2]]
        parts[index] = "".join(pieces)
    return "".join(parts)


def _first_line(thing: object) -> str:
    return _escaped((inspect.getdoc(thing) or "").partition("\n")[0])


def _table(rows: list[dict[str, str]]) -> str:
    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
