"""`adaptive-bench status`: what is done, runs, stopped or failed in an output folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.tables import fitting
from adaptive_bench.store.runs import check_output

_ORDER = ("running", "stopped", "partial", "failed", "damaged", "planned", "done")


def status(
    out: Annotated[Path, typer.Option(readable=False, help="Folder of the records.")] = Path("runs"),
    everything: Annotated[bool, typer.Option("--all", help="List finished work as well.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every five seconds until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show what runs, what stopped, what failed and why, and what is damaged or missing.

    `stopped` is work whose process is gone, `partial` work that was interrupted: the command of its run goes on with
    both.
    """
    from adaptive_bench.store.inventory import pieces

    check_output(out)
    while True:
        found = sorted(pieces(out), key=lambda piece: _ORDER.index(piece.state) if piece.state in _ORDER else 0)
        if as_json:
            typer.echo(json.dumps([asdict(piece) | {"folder": str(piece.folder)} for piece in found], indent=2))
        else:
            counts = Counter(piece.state for piece in found)
            summary = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
            typer.echo(f"{len(found)} pieces of work in {out}: {summary or 'nothing was begun'}")
            rows = [
                {
                    "state": piece.state,
                    "work": piece.work,
                    "method": piece.method,
                    "seed": "" if piece.seed is None else str(piece.seed),
                    "progress": piece.progress,
                    "since": piece.since,
                }
                for piece in found
                if everything or piece.state != "done"
            ]
            if rows:
                typer.echo("\n" + fitting(rows))
            for piece in found:
                if piece.state in ("failed", "damaged"):
                    typer.echo("\n" + paragraph(f"{piece.work} {piece.method}: {piece.reason} See {piece.folder}"))
        if not watch:
            return
        time.sleep(5)
        typer.echo()
