"""`adaptive-bench leaderboard`: tables of runs as text, as a page, and beside those of the GateSkip paper.

What its files hold is made by the plugins of the groups `leaderboards` and `sites`. `entries` has the commands of what
others submit.
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
from adaptive_bench.cli.options import DEFAULT_OUT, Command, Out, Plugins, Runs, check_word, find_run, tables_of
from adaptive_bench.cli.terminal_text import READING_TABLES, in_parts, listed, paragraph, plain_table, waiting
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store.results import ending_of, read_table
from adaptive_bench.store.runs import tables, tables_below
from adaptive_bench.tables.finished import Row, joined, made_by_other_rules, not_to_be_quoted, phase_of

_COUNTED = ("net", "core", "tokens")  # in every phase; the others pooled only
AXES = (*_COUNTED, "claimed", "projected", "bytes", "time")
PHASES = ("all", "prefill", "decode")


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
    axis: Annotated[
        str | None, typer.Option(metavar="|".join(AXES), help="The axis; by default the one the run was matched on.")
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(metavar="|".join(PHASES), help="The tokens that count; by default those the run was matched on."),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Scores with intervals at all levels, and what was saved and spent there.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every measured axis and phase; with --format markdown every metric as well.")
    ] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Print the leaderboard of one or several runs."""
    check_word("--axis", axis, AXES)
    check_word("--phase", phase, PHASES)
    if wide and style != "terminal":
        raise UsageError(
            f"--wide is for --format terminal, got {style!r}, which shows all levels anyway. Leave it out."
        )
    render = registry.get("leaderboards", style)
    chosen = tables_of(runs, out)
    folders = [path.parent for path in chosen]
    rows = joined({path.parent: read_table(path) for path in chosen})
    for note in (*not_to_be_quoted(folders), *made_by_other_rules(folders)):
        typer.echo(f"Note: {note}", err=True)
    axis_then, phase_then = _matched(folders, rows)
    one_axis = axis or axis_then
    one_phase = phase or (phase_then if one_axis in _COUNTED else "all")
    axes = {one_axis} if axis or not full else set(AXES) - {"projected"}
    phases = {one_phase} if phase or not full else set(PHASES)
    found = [row for row in rows if row["axis"] in axes and phase_of(row) in phases]
    if rows and not found:
        raise EnvironmentProblem(_missing(one_axis, one_phase, rows))
    typer.echo(render(found, wide=wide or full) if style == "terminal" else render(found))


def _matched(folders: list[Path], rows: list[Row]) -> tuple[str, str]:
    """Axis and phase the runs were matched on, where they agree; else saved net FLOPs, pooled."""
    said = {(about.get("match_on"), about.get("match_phase")) for about in map(ending_of, folders)}
    if len(said) == 1 and None not in (only := said.pop()):
        return str(only[0]), str(only[1])
    axes = [row["axis"] for row in rows]
    return ("net" if "net" in axes or not axes else axes[0]), "all"


def _missing(axis: str, phase: str, rows: list[Row]) -> str:
    """Why there is no table, and how to get one."""
    if axis == "time" and not any(row["axis"] == "time" for row in rows):
        return (
            "A table by saved time needs timings of the run's methods, but there is none in these tables. Give "
            "`adaptive-bench time` with the run's --model, --methods and --out, then its `run` once more: nothing is "
            "computed again."
        )
    if phase != "all" and axis not in _COUNTED:
        return (
            f"Saved {axis} is known of all phases together alone, got --phase {phase}. Leave --phase out, or give "
            f"--axis {', '.join(_COUNTED[:-1])} or {_COUNTED[-1]}."
        )
    there = sorted({(row["axis"], phase_of(row)) for row in rows})
    return (
        f"These tables have no rows by {axis} in the phase {phase!r}; there is "
        f"{', '.join(found if where == 'all' else f'{found} of {where}' for found, where in there)}. Log-likelihood "
        f"tasks write no tokens, and older tables are pooled only: give the same `adaptive-bench run` again."
    )


@app.command("build", cls=Command)
def build(
    runs: Runs = None,
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
    plugin: Plugins = None,
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
    check_word("--axis", axis, AXES)
    check_word("--phase", phase, PHASES)
    chosen = tables_of(runs, out)
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


MarkdownFile = Annotated[
    Path, typer.Option("--output", "-o", parser=output.file, help="Markdown file to write; - for standard output.")
]


@app.command("ranks", cls=Command)
def ranks(
    runs: Runs = None,
    before: Annotated[
        Path | None, typer.Option(help="Folder with the entries that the board has: ranks stand beside theirs.")
    ] = None,
    to: MarkdownFile = Path("ranks.md"),
    plugin: Plugins = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write the ranked tables that an entry changes, and what is refused, as text for a pull request."""
    if before is not None and not before.is_dir():
        raise UsageError(f"--before is a folder of entries, got {str(before)!r}, which is none. Name the folder.")
    chosen = tables_of(runs, out)
    known = None if before is None else tables_below(before)
    registry.load_plugins(plugin)
    with waiting(READING_TABLES):
        text = registry.get("sites", "ranks")(chosen, known)
    output.write_text(to, text)
    typer.echo(f"The ranks are in {output.named(to)}", err=output.is_stdout(to))


@app.command("findings", cls=Command)
def findings(
    runs: Runs = None,
    to: MarkdownFile = Path("findings.md"),
    axis: Annotated[str, typer.Option(metavar="|".join(AXES), help="What the level is a share of.")] = "net",
    level: Annotated[
        float, typer.Option(min=0, max=1, help="The saving on that axis that the sentences are about.")
    ] = 0.15,
    note: Annotated[str, typer.Option(help="Put this first: what a reader has to know of the runs, in markdown.")] = "",
    out: Out = DEFAULT_OUT,
) -> None:
    """Write what a board found as sentences, each with its figures and intervals."""
    check_word("--axis", axis, AXES)
    chosen = tables_of(runs, out)
    with waiting(READING_TABLES):
        said = list(registry.get("sites", "findings")(chosen, to, axis, level, note))
    for text in said:
        typer.echo(text, err=True)
    typer.echo(f"The findings are in {output.named(to)}", err=output.is_stdout(to))


class PaperForm(StrEnum):
    """How a table of the paper is printed."""

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

    Without a run the paper's values stand alone, with the commands that make ours.
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
    """A table of the paper, with what runs have, as text."""
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
    """The rows of some columns: theirs once, and below it each of ours."""
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
