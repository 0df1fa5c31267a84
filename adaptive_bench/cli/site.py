"""`adaptive-bench leaderboard build`: a board as one page and as files of data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.leaderboard import AXES, PHASES, check_value
from adaptive_bench.cli.named_run import Out, Runs
from adaptive_bench.cli.waiting import READING_TABLES, waiting
from adaptive_bench.errors import UsageError
from adaptive_bench.store.runs import DEFAULT_OUT, newest, tables, tables_below


def build(
    folders: Runs = None,
    to: Annotated[Path, typer.Option("--output", "-o", parser=output.folder, help="Folder to write.")] = Path("site"),
    axis: Annotated[
        str | None, typer.Option(metavar="|".join(AXES), help="Shown first; by default what the runs were matched on.")
    ] = None,
    phase: Annotated[str | None, typer.Option(metavar="|".join(PHASES), help="Shown first.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw figures for papers as well (SVG and PDF, by matplotlib).")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if an entry or a row is refused; the rest is written first.")
    ] = False,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="Python file with a task or method that an entry was made with.")
    ] = None,
    one_file: Annotated[
        bool, typer.Option("--one-file", help="All data inside index.html, to pass it on alone.")
    ] = False,
    manual: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where the documentation is, for links: https://..., or .. beside it."),
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write a board: `index.html`, which asks nothing of a network, with its data beside it, and the same numbers as
    Markdown, CSV, JSON and Parquet.
    """
    check_value("--axis", axis, AXES)
    check_value("--phase", phase, PHASES)
    chosen = [path for folder in folders for path in tables(folder)] if folders else [newest(out)]
    registry.load_plugins(plugin)
    site = registry.get("sites", "board")
    with waiting(READING_TABLES):
        said = list(site(chosen, to, axis, phase, figures=figures, strict=strict, one_file=one_file, manual=manual))
    for text in said:
        typer.echo(paragraph(text), err=True)
    page = to / "index.html"
    typer.echo(f"The page is {page}")
    if open_:
        typer.launch(str(page.resolve()))


def ranks(
    folders: Runs = None,
    before: Annotated[
        Path | None, typer.Option(help="Folder with the entries that the board has: ranks stand beside theirs.")
    ] = None,
    to: Annotated[
        Path,
        typer.Option("--output", "-o", parser=output.file, help="Markdown file to write; - for standard output."),
    ] = Path("ranks.md"),
    plugin: Annotated[
        list[Path] | None, typer.Option(help="Python file with a task or method that an entry was made with.")
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write the ranked tables that an entry changes, and what is refused, as text for a pull request."""
    if before is not None and not before.is_dir():
        raise UsageError(f"--before is a folder of entries, got {str(before)!r}, which is none. Name the folder.")
    chosen = [path for folder in folders for path in tables(folder)] if folders else [newest(out)]
    known = None if before is None else tables_below(before)
    registry.load_plugins(plugin)
    with waiting(READING_TABLES):
        text = registry.get("sites", "ranks")(chosen, known)
    output.write_text(to, text)
    typer.echo(f"The ranks are in {output.named(to)}", err=output.is_stdout(to))


def findings(
    folders: Runs = None,
    to: Annotated[
        Path,
        typer.Option("--output", "-o", parser=output.file, help="Markdown file to write; - for standard output."),
    ] = Path("findings.md"),
    axis: Annotated[str, typer.Option(metavar="|".join(AXES), help="What the level is a share of.")] = "net",
    level: Annotated[
        float, typer.Option(min=0, max=1, help="The saving on that axis that the sentences are about.")
    ] = 0.15,
    note: Annotated[str, typer.Option(help="Put this first: what a reader has to know of the runs, in markdown.")] = "",
    out: Out = DEFAULT_OUT,
) -> None:
    """Write what a board found as sentences, each with its figures and intervals."""
    check_value("--axis", axis, AXES)
    chosen = [path for folder in folders for path in tables(folder)] if folders else [newest(out)]
    with waiting(READING_TABLES):
        said = list(registry.get("sites", "findings")(chosen, to, axis, level, note))
    for text in said:
        typer.echo(text, err=True)
    typer.echo(f"The findings are in {output.named(to)}", err=output.is_stdout(to))
