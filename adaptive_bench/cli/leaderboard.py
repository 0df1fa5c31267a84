"""`adaptive-bench leaderboard`: shows tables of runs as text, a page, and beside the GateSkip paper's; writes entries.

Plugins of the group `leaderboards` make the text, those of `board_commands` do what the other commands are for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from adaptive_bench import output, registry
from adaptive_bench.cli import options
from adaptive_bench.cli.terminal_text import (
    READING_TABLES,
    in_parts,
    listed,
    load_libraries,
    paragraph,
    plain_table,
    waiting,
)
from adaptive_bench.errors import UsageError
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.runs import is_entry, is_output, read_json, tables, tables_below
from adaptive_bench.tables.comparability import not_to_be_quoted
from adaptive_bench.validation import read_mapping

ENTRIES = Path("leaderboard/entries")  # of a checkout of this repository, to which entries are proposed


class _ShowByDefault(TyperGroup):
    """`leaderboard RUNS` is `leaderboard show RUNS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_help = bool(args) and args[0] in ctx.help_option_names
        # Options before any name belong to `show` too: `leaderboard --all`.
        if not asks_help and (not args or args[0] not in self.commands):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowByDefault,
    help="The leaderboard of runs: print it, build a page, share.",
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.command("show", cls=options.Command)
def show(
    runs: options.Runs = None,
    style: Annotated[
        str, typer.Option("--format", help="terminal (80 columns), or markdown with everything.")
    ] = "terminal",
    everything: Annotated[
        bool, typer.Option("--all", help="All levels and rows, with what was saved and the scores of every task.")
    ] = False,
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Print the leaderboard of one or several runs."""
    options.check_goes_with("--all", everything, "--format terminal", style == "terminal")
    render = registry.get("leaderboards", style)
    chosen = options.tables_of(runs, out, plugin)
    for note in not_to_be_quoted(path.parent for path in chosen):
        typer.echo(f"Note: {note}", err=True)
    for path in chosen:
        if not is_entry(path.parent):
            read_json(path)  # raises an error that says how to repair a damaged table, which would be left out below
    # Only the terminal's table leaves anything out.
    typer.echo(render(chosen, wide=everything) if style == "terminal" else render(chosen))


@app.command("build", cls=options.Command)
def build(
    runs: options.Runs = None,
    to: Annotated[Path, options.to_folder("Folder to write.")] = Path("site"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if an entry or a row is refused; the rest is written first.")
    ] = False,
    plugin: options.Plugins = None,
    manual: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where the documentation is, for links: https://..., or .. beside it."),
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Write a board: `index.html` and a page for each method, which need no network and no scripts, and the same
    numbers as Markdown and Parquet.
    """
    chosen = options.tables_of(runs, out, plugin)
    site = registry.get("board_commands", "board")
    waiting(READING_TABLES)
    for text in list(site(chosen, to, strict=strict, manual=manual)):
        typer.echo(paragraph(text), err=True)
    page = to / "index.html"
    typer.echo(f"The page is {page}")
    if open_:
        typer.launch(str(page.resolve()))


MarkdownFile = Annotated[Path, typer.Option("--output", "-o", help="Markdown file to write; - for standard output.")]


@app.command("ranks", cls=options.Command)
def ranks(
    runs: options.Runs = None,
    before: Annotated[
        Path | None, typer.Option(help="Folder with the entries that the board has; ranks are shown beside theirs.")
    ] = None,
    to: MarkdownFile = Path("ranks.md"),
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Write the ranked tables that an entry changes, and what is refused, as Markdown for a pull request."""
    if before is not None and not before.is_dir():
        raise UsageError(f"--before is a folder of entries, got {str(before)!r}, which is no folder. Name one.")
    chosen = options.tables_of(runs, out, plugin)
    known = None if before is None else tables_below(before)
    waiting(READING_TABLES)
    output.write_text(to, registry.get("board_commands", "ranks")(chosen, known))
    typer.echo(f"The ranks are in {output.named(to)}", err=output.is_stdout(to))


PaperForm = Literal["terminal", "markdown", "json"]


@app.command("paper", cls=options.Command)
def paper(
    table: Annotated[
        int | None, typer.Argument(help="Number of the paper's table; without it they are listed.", min=1)
    ] = None,
    runs: options.Runs = None,
    style: Annotated[PaperForm, typer.Option("--format", help="terminal, markdown or json.")] = "terminal",
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Print a table of the GateSkip paper beside the same rows and columns of runs, and say what agrees.

    Without a run the paper's values are shown alone, with the commands that make ours.
    """
    if table is None:
        options.check_goes_with("--format", style != "terminal", "the number of a table", False)
        typer.echo(listed(registry.get("board_commands", "paper_tables")()))
        return
    chosen = [path for run in runs or () for path in tables(options.find_run(run, out))]
    if chosen:
        waiting(READING_TABLES)
    found, problems = registry.get("board_commands", "paper")(chosen, table)
    if style == "json":
        typer.echo(json_text(found), nl=False)
    else:
        typer.echo("\n\n".join(paper_text(one, style) for one in found))
    for text in problems:
        typer.echo(paragraph(f"Note: {text}"), err=True)


def paper_text(one: dict[str, Any], style: PaperForm) -> str:
    """A table of the paper, with the values of runs beside it, as text."""
    title = f"Table {one['table']} ({one['source']}). {one['caption']}"
    ours = f"Beside it, by saved tokens: {one['model']}." if one["model"] else ""
    is_markdown = style == "markdown"
    parts = [f"## {title}" if is_markdown else paragraph(title), ours]
    for group in one["groups"]:
        lines = _paper_lines(one, group)
        # `_paper_lines` has indented our rows.
        body = [
            [f"here: `{text.strip()}`" if text.startswith("  ") else text for text in line.values()] for line in lines
        ]
        github = plain_table(body, list(lines[0]), tablefmt="github") if is_markdown else ""
        parts += [group["name"], github or in_parts(lines)]
    parts += ["\n".join(f"- {text}" for text in one["said"])] if is_markdown else map(paragraph, one["said"])
    return "\n\n".join(filter(None, parts))


def _paper_lines(one: dict[str, Any], group: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of some columns: each of the paper's rows once, and below it our rows for it."""
    lines, columns, before = [], group["columns"], None
    places = range(group["first"], group["first"] + len(columns))
    for row in one["rows"]:
        whose = [("theirs", row["name"])] if row["name"] != before else []
        whose += [("ours", f"  {row['label']}")] if row["label"] is not None else []
        # `theirs` and `ours` of a row hold a text for each column of the whole table.
        for key, name in whose:
            lines.append({"": name} | {title: row[key][at] for title, at in zip(columns, places, strict=True)})
        before = row["name"]
    return lines


@app.command("submit", cls=options.Command)
def submit(
    run: options.Run,
    to: Annotated[Path, options.to_folder("Folder of entries to add it to.")] = ENTRIES,
    authors: Annotated[str | None, typer.Option(help="Names, separated by semicolons.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the entry, by its SPDX name: CC-BY-4.0.")] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with authors (a list), licence, affiliation, links to paper, code and plugin, and package "
            "(name==version)."
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--with", metavar="ENTRY", help="An entry of the same comparison with other seeds, to take in."),
    ] = None,
    plugin: options.Plugins = None,
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Write a run as an entry of a board: its measurements, its configuration, and who made it with which versions.

    The entry tells nothing of this machine but the name of its processor. Commit the new folder to propose it.
    """
    if is_output(to):
        raise UsageError(
            f"-o is a folder of entries, but {str(to)!r} has runs, whose names entries would take. Name another folder."
        )
    folder = options.find_run(run, out)
    registry.load_plugins(plugin)
    said = {} if about is None else dict(read_mapping(about))  # options come after it and win
    said |= {} if authors is None else {"authors": [one.strip() for one in authors.split(";") if one.strip()]}
    said |= {} if licence is None else {"licence": licence}
    load_libraries()
    typer.echo(f"The entry is {registry.get('board_commands', 'submit')(folder, to, about=said, earlier=earlier)}")


@app.command("verify", cls=options.Command)
def verify(
    entry: Annotated[Path, typer.Argument(help="Folder of an entry.")],
    as_json: options.AsJson = False,
    plugin: options.Plugins = None,
) -> None:
    """Compute the table of an entry from its measurements and print it.

    To check a method of it, train it again with a seed that the entry does not have: `run --config ENTRY/config.yaml
    --methods dense,METHOD --no-controls --no-shuffled --seeds 4, --all`. If the scores of each task agree with those of
    `leaderboard show ENTRY --all`, the maintainer who merges the entry writes `status: reproduced` into its about.yaml.
    """
    registry.load_plugins(plugin)
    known = registry.get("board_commands", "entry")(entry)
    table = registry.get("leaderboards", "terminal")
    typer.echo(json_text(known.rows).rstrip() if as_json else table([entry / "table.json"]))
    for text in known.warnings:
        typer.echo(paragraph(f"Note: {text}"), err=True)


@app.command("publish", cls=options.Command)
def publish(
    site: Annotated[Path, typer.Argument(help="Folder that `leaderboard build` wrote.")] = Path("site"),
    to: Annotated[str, typer.Option(help="Name or address of a git remote.")] = "origin",
    branch: Annotated[str, typer.Option(help="Branch of the remote.")] = "gh-pages",
    docs: Annotated[
        Path | None,
        typer.Option(help="Site of the documentation (`make docs`: build/docs), published around the board."),
    ] = None,
) -> None:
    """Commit a site to a branch of a git remote. The local work tree is not touched."""
    typer.echo(registry.get("board_commands", "publish")(site, to, branch, docs))
