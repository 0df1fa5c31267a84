"""`adaptive-bench leaderboard`: shows tables of runs as text, as a page, and beside those of the GateSkip paper.

Plugins of the groups `leaderboards` and `sites` make the contents. The commands for submitted entries are in `entries`.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adaptive_bench import output, registry
from adaptive_bench.cli import entries
from adaptive_bench.cli.options import DEFAULT_OUT, Command, Out, Plugins, Runs, find_run, tables_of
from adaptive_bench.cli.terminal_text import READING_TABLES, in_parts, listed, paragraph, plain_table, waiting
from adaptive_bench.errors import UsageError
from adaptive_bench.store.results import read_table
from adaptive_bench.store.runs import is_entry, tables, tables_below
from adaptive_bench.tables.comparability import not_to_be_quoted


class _ShowByDefault(TyperGroup):
    """`leaderboard RUNS` is `leaderboard show RUNS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks_help = bool(args) and args[0] in ctx.help_option_names
        if not asks_help and (not args or args[0] not in self.commands):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowByDefault,
    help="The leaderboard of runs: print it, build a page, share.",
    rich_markup_mode="markdown",
    add_completion=False,
)


@app.command("show", cls=Command)
def show(
    runs: Runs = None,
    style: Annotated[
        str, typer.Option("--format", help="terminal (80 columns), or markdown with everything.")
    ] = "terminal",
    everything: Annotated[
        bool, typer.Option("--all", help="All levels and rows, with what was saved and the scores of every task.")
    ] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Print the leaderboard of one or several runs."""
    if everything and style != "terminal":
        raise UsageError(f"--all is for --format terminal, got {style!r}, which shows everything anyway. Leave it out.")
    render = registry.get("leaderboards", style)
    chosen = tables_of(runs, out)
    for note in not_to_be_quoted(path.parent for path in chosen):
        typer.echo(f"Note: {note}", err=True)
    for path in chosen:
        if not is_entry(path.parent):
            read_table(path)  # raises an error that says how to repair a damaged table, which would be left out below
    typer.echo(render(chosen, wide=everything) if style == "terminal" else render(chosen))


@app.command("build", cls=Command)
def build(
    runs: Runs = None,
    to: Annotated[Path, typer.Option("--output", "-o", parser=output.folder, help="Folder to write.")] = Path("site"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if an entry or a row is refused; the rest is written first.")
    ] = False,
    plugin: Plugins = None,
    one_file: Annotated[
        bool, typer.Option("--one-file", help="Write index.html alone, without a page for each method.")
    ] = False,
    manual: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where the documentation is, for links: https://..., or .. beside it."),
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write a board: `index.html` and a page for each method, which need no network and no scripts, and the same
    numbers as Markdown, CSV, JSON and Parquet.
    """
    chosen = tables_of(runs, out)
    registry.load_plugins(plugin)
    site = registry.get("sites", "board")
    with waiting(READING_TABLES):
        said = list(site(chosen, to, strict=strict, one_file=one_file, manual=manual))
    for text in said:
        typer.echo(paragraph(text), err=True)
    page = to / "index.html"
    typer.echo(f"The page is {page}")
    if open_:
        typer.launch(str(page.resolve()))


MarkdownFile = Annotated[
    Path, typer.Option("--output", "-o", parser=output.file, help="Markdown file to write; - for standard output.")
]


@app.command("ranks", cls=Command)
def ranks(
    runs: Runs = None,
    before: Annotated[
        Path | None, typer.Option(help="Folder with the entries that the board has; ranks are shown beside theirs.")
    ] = None,
    to: MarkdownFile = Path("ranks.md"),
    plugin: Plugins = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write the ranked tables that an entry changes, and what is refused, as Markdown for a pull request."""
    if before is not None and not before.is_dir():
        raise UsageError(f"--before is a folder of entries, got {str(before)!r}, which is no folder. Name one.")
    chosen = tables_of(runs, out)
    known = None if before is None else tables_below(before)
    registry.load_plugins(plugin)
    with waiting(READING_TABLES):
        text = registry.get("sites", "ranks")(chosen, known)
    output.write_text(to, text)
    typer.echo(f"The ranks are in {output.named(to)}", err=output.is_stdout(to))


class PaperForm(StrEnum):
    """The format in which a table of the paper is printed."""

    terminal = "terminal"
    markdown = "markdown"
    json = "json"


@app.command("paper", cls=Command)
def paper(
    table: Annotated[
        int | None, typer.Argument(help="Number of the paper's table; without it they are listed.", min=1)
    ] = None,
    runs: Runs = None,
    style: Annotated[PaperForm, typer.Option("--format", help="terminal, markdown or json.")] = PaperForm.terminal,
    out: Out = DEFAULT_OUT,
) -> None:
    """Print a table of the GateSkip paper beside the same rows and columns of runs, and say what agrees.

    Without a run the paper's values are shown alone, with the commands that make ours.
    """
    if table is None:
        if style is not PaperForm.terminal:
            raise UsageError(
                f"--format is that of one table, got {style} and no number of a table. Give one: "
                f"`adaptive-bench leaderboard paper` lists them."
            )
        typer.echo(listed(registry.get("sites", "paper_tables")()))
        return
    chosen = [path for run in runs or () for path in tables(find_run(run, out))]
    with waiting(READING_TABLES) if chosen else nullcontext():
        found, problems = registry.get("sites", "paper")(chosen, table)
    if style is PaperForm.json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(paper_text(one, style) for one in found))
    for text in problems:
        typer.echo(paragraph(f"Note: {text}"), err=True)


def paper_text(one: dict[str, Any], style: PaperForm) -> str:
    """A table of the paper, with the values of runs beside it, as text."""
    title = f"Table {one['table']} ({one['source']}). {one['caption']}"
    ours = f"Beside it, by saved tokens: {one['model']}." if one["model"] else ""
    is_markdown = style is PaperForm.markdown
    parts = [f"## {title}" if is_markdown else paragraph(title), ours]
    for group in one["groups"]:
        lines = _paper_lines(one, group)
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
        for key, name in whose:
            lines.append({"": name} | {title: row[key][at] for title, at in zip(columns, places, strict=True)})
        before = row["name"]
    return lines


for _command in (entries.submit, entries.verify, entries.publish):
    app.command(_command.__name__, cls=Command)(_command)
