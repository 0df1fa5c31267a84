"""`adaptive-bench leaderboard paper`: a table of the GateSkip paper beside what runs have, and where the two agree."""

from __future__ import annotations

import json
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated, Any

import typer

from adaptive_bench import registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Runs
from adaptive_bench.cli.tables import in_parts, listed
from adaptive_bench.cli.waiting import READING_TABLES, waiting
from adaptive_bench.errors import UsageError
from adaptive_bench.store.runs import tables


class Form(StrEnum):
    """How it is printed."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"


def paper(
    table: Annotated[
        int | None, typer.Argument(help="Number of the paper's table; without it they are listed.", min=1)
    ] = None,
    folders: Runs = None,
    style: Annotated[Form, typer.Option("--format", help="terminal, markdown or json.")] = Form.terminal,
) -> None:
    """Print a table of the GateSkip paper beside the same rows and columns of runs, and say what agrees.

    Without a run the paper's values stand alone, with the commands that make ours.
    """
    if table is None:
        if style is not Form.terminal:
            raise UsageError(
                f"--format is that of one table, got {style} and no number of a table. Give one: "
                f"`adaptive-bench leaderboard paper` lists them."
            )
        typer.echo(listed(registry.get("sites", "paper_tables")()))
        return
    chosen = [path for folder in folders or () for path in tables(folder)]
    with waiting(READING_TABLES) if chosen else nullcontext():
        found, problems = registry.get("sites", "paper")(chosen, table)
    if style is Form.json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(_shown(one, style) for one in found))
    for text in problems:
        typer.echo(paragraph(f"Note: {text}"), err=True)


def _shown(one: dict[str, Any], style: Form) -> str:
    title = f"Table {one['table']} ({one['source']}). {one['caption']}"
    ours = f"Beside it, by saved tokens: {one['model']}." if one["model"] else ""
    if style is Form.markdown:
        tables = [part for group in one["groups"] for part in (group["name"], _markdown(_lines(one, group))) if part]
        said = "\n".join(f"- {text}" for text in one["said"])
        return "\n\n".join(part for part in (f"## {title}", ours, *tables, said) if part)
    tables = [part for group in one["groups"] for part in (group["name"], in_parts(_lines(one, group))) if part]
    return "\n\n".join(part for part in (paragraph(title), ours, *tables, *map(paragraph, one["said"])) if part)


def _lines(one: dict[str, Any], group: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of some columns: theirs once, and below it each of ours."""
    lines, columns = [], group["columns"]
    places = range(group["first"], group["first"] + len(columns))
    before = None
    for row in one["rows"]:
        if row["name"] != before:
            lines.append(
                {"": row["name"]} | {name: row["theirs"][at] for name, at in zip(columns, places, strict=True)}
            )
        if row["label"] is not None:
            ours = {name: row["ours"][at] for name, at in zip(columns, places, strict=True)}
            lines.append({"": f"  {row['label']}"} | ours)
        before = row["name"]
    return lines


def _markdown(lines: list[dict[str, str]]) -> str:
    from tabulate import tabulate

    body = [[f"here: `{text.strip()}`" if text.startswith("  ") else text for text in line.values()] for line in lines]
    return str(tabulate(body, list(lines[0]), tablefmt="github", disable_numparse=True))
