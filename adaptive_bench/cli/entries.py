"""`adaptive-bench leaderboard submit`, `verify` and `publish`: write, check and publish what others see of a board."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, DataDir, Device, Out, Plugins, Run, find_run
from adaptive_bench.cli.terminal_text import fitting, load_libraries, paragraph
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.runs import is_output, quoted_name, read_json
from adaptive_bench.store.timings import BATCHES
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import rule_of

ENTRIES = Path("leaderboard/entries")


def submit(
    run: Run,
    to: Annotated[
        Path, typer.Option("--output", "-o", parser=output.folder, help="Folder of entries to add it to.")
    ] = ENTRIES,
    authors: Annotated[str | None, typer.Option(help="Names, separated by semicolons.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the entry, by its SPDX name: CC-BY-4.0.")] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with authors (a list), licence, affiliation, links to paper, code and plugin, and package "
            "(name==version)."
        ),
    ] = None,
    plugin: Plugins = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write a run as an entry of a board: its measurements, its configuration, and who made it with which versions.

    The entry tells nothing of this machine but the name of its processor. Commit the new folder to propose it.
    """
    if is_output(to):
        raise UsageError(
            f"-o is a folder of entries, but {str(to)!r} has runs, whose names entries would take. Name another folder."
        )
    folder = find_run(run, out)
    registry.load_plugins(plugin)
    said = {} if about is None else dict(read_mapping(about))
    said |= {} if authors is None else {"authors": [one.strip() for one in authors.split(";") if one.strip()]}
    said |= {} if licence is None else {"licence": licence}
    load_libraries()
    written = registry.get("sites", "submit")(folder, to, about=said)
    typer.echo(f"The entry is {written}")
    # Note the usual batch sizes at which the run was not timed.
    points = (point for sweep in read_json(folder / "answers.json")["sweeps"] for point in sweep["points"])
    timed = {setting.partition(",")[0] for point in points for setting in point["times"]}
    if missing := [str(batch) for batch in BATCHES if f"batch {batch}" not in timed]:
        typer.echo(
            paragraph(
                f"Note: this run was not timed at batch {', '.join(missing)}, so the entry does not say what a saving "
                f"is worth in time. To add it, give `adaptive-bench time --run {quoted_name(folder)}` and the run's "
                f"command once more (nothing is computed twice), remove this entry and submit the run again."
            )
        )


def verify(
    entry: Annotated[Path, typer.Argument(help="Folder of an entry.")],
    rerun: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Train this method of the entry again, with a fresh seed.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The fresh seed; default: the entry's largest + 1.")] = None,
    out: Out = DEFAULT_OUT,
    model: Annotated[str | None, typer.Option(help="The model, if the entry names a folder of its author's.")] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Compute the table of an entry from its measurements and print it; or train one of its methods again with a fresh
    seed, and print both scores side by side.

    If the two agree, the maintainer who merges the entry writes `status: reproduced` into its about.yaml.
    """
    registry.load_plugins(plugin)
    known = registry.get("sites", "entry")(entry)
    if rerun is None:
        typer.echo(
            _as_json(known.rows) if as_json else registry.get("leaderboards", "terminal")([entry / "table.json"])
        )
        for text in known.warnings:
            typer.echo(paragraph(f"Note: {text}"), err=True)
        return
    load_libraries()
    from pydantic import ValidationError

    from adaptive_bench.config import RunConfig
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs import run

    specs = {str(MethodSpec.parse(text)): text for text in known.config["methods"]}
    if (spec := str(MethodSpec.parse(rerun))) not in specs:
        raise UsageError(f"--rerun is a method of the entry, got {rerun!r}. {registry.did_you_mean(spec, specs)}")
    fresh = max(known.config["seeds"]) + 1 if seed is None else seed
    given: dict[str, Any] = {"methods": [specs[spec]], "seeds": [fresh], "shuffled": False}
    given |= {"out": out, "device": device, "data_dir": data_dir, "model": model or known.config["model"]}
    try:
        config = RunConfig.model_validate({**known.config, **given})
    except ValidationError as error:
        raise UsageError(
            f"An entry's config.yaml is a run's, but this one has {error.error_count()} wrong value(s), the first: "
            f"{rule_of(error.errors()[0])}. It cannot be run again."
        ) from error
    with open_reporter() as reporter:
        found = run(config, reporter)
    now = {_place(row): row for row in found.rows}
    pairs = [(row, now[_place(row)]) for row in known.rows if _place(row) in now and row["score"] is not None]
    if as_json:
        typer.echo(_as_json([{"entry": row, "rerun": again} for row, again in pairs]))
    else:
        typer.echo(fitting([_beside(row, again) for row, again in pairs]))
    for failure in found.failures:
        typer.echo(str(failure), err=True)
    raise typer.Exit(found.exit_code)


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("method", "semantics", "task", "metric", "level", "timing"))


def _beside(row: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, str]:
    """A score of the entry with its interval, and the score with the fresh seed."""
    shown = {name: "" if row[name] is None else f"{row[name]:.4f}" for name in ("score", "low", "high")}
    return {
        "task": row["task"],
        "metric": row["metric"],
        "level": f"{row['level']:.0%}",
        "entry": shown["score"],
        "95 %": f"{shown['low']} to {shown['high']}" if shown["low"] else "",
        "seeds": str(row["seeds"]),
        "rerun": "n/a" if again["score"] is None else f"{again['score']:.4f}",
    }


def _as_json(values: Sequence[Any]) -> str:
    return json.dumps(list(values), indent=2, ensure_ascii=False)


def publish(
    site: Annotated[Path, typer.Argument(help="Folder that `leaderboard build` wrote.")] = Path("site"),
    to: Annotated[str, typer.Option(help="Name or address of a git remote; or a folder to copy to.")] = "origin",
    branch: Annotated[str, typer.Option(help="Branch of the remote.")] = "gh-pages",
    docs: Annotated[
        Path | None,
        typer.Option(help="Site of the documentation (`make docs`: build/docs), published around the board."),
    ] = None,
) -> None:
    """Commit a site to a branch of a git remote, or copy it to a folder. The local work tree is not touched."""
    typer.echo(registry.get("sites", "publish")(site, to, branch, docs))
