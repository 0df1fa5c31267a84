"""`adaptive-bench leaderboard submit`, `verify` and `publish`: what others see of a board, and whether it holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.named_run import Run, named, run_names
from adaptive_bench.cli.tables import fitting
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import EnvironmentProblem, UsageError, one_line
from adaptive_bench.metric import TOLERATED_SHARE
from adaptive_bench.spec import MethodSpec, parse_specs
from adaptive_bench.store.results import read_json
from adaptive_bench.store.runs import quoted_name
from adaptive_bench.store.shelves import DEFAULT_OUT, is_output
from adaptive_bench.store.timings import BATCHES
from adaptive_bench.strict_yaml import read_mapping
from adaptive_bench.validation import rule_of

if TYPE_CHECKING:
    from adaptive_bench.config import RunConfig

ENTRIES = Path("leaderboard/entries")
_SHOWN = 20  # differences


def submit(
    run: Run,
    to: Annotated[
        Path, typer.Option("--output", "-o", parser=output.folder, help="Folder of entries that gets it.")
    ] = ENTRIES,
    records: Annotated[
        bool,
        typer.Option(
            help="Put the run's records into it, without weights: a board makes the table of them. Without them the "
            "entry is shown as self-reported.",
        ),
    ] = True,
    authors: Annotated[str | None, typer.Option(help="Names, separated by semicolons.")] = None,
    licence: Annotated[str | None, typer.Option(help="Of the entry, by its SPDX name: CC-BY-4.0, say.")] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with authors (a list), licence, affiliation, links to paper, code and plugin, and package "
            "(name==version)."
        ),
    ] = None,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
) -> None:
    """Write a run as an entry of a board, checked as a board checks it: records, configuration, versions and digests.

    Nothing of this machine but the name of its processor goes along. Commit the new folder to propose it.
    """
    if is_output(to):
        raise UsageError(
            f"-o is a folder of entries, but {str(to)!r} has runs, and an entry has the name of its run. Name another "
            f"folder."
        )
    registry.load_plugins(plugin)
    said = {} if about is None else dict(read_mapping(about))
    said |= {} if authors is None else {"authors": [one.strip() for one in authors.split(";") if one.strip()]}
    said |= {} if licence is None else {"licence": licence}
    written = registry.get("sites", "submit")(run, to, with_records=records, about=said)
    typer.echo(f"The entry is {written}")
    if missing := untimed(run):
        sizes = ", ".join(map(str, missing))
        typer.echo(
            paragraph(
                f"Note: this run was not timed at batch {sizes}, so the entry does not say what a saving is worth in "
                f"time. For one that does give `adaptive-bench time --run {quoted_name(run)}` and the run's command "
                f"once more (nothing is computed twice), remove this entry and submit the run again."
            )
        )


def untimed(run: Path) -> list[int]:
    """Batch sizes that practice asks for and a run has no time of."""
    points = [point for sweep in read_json(run / "answers.json")["sweeps"] for point in sweep["points"]]
    settings = {setting for point in points for setting in point["times"]}
    return [batch for batch in BATCHES if not any(one.startswith(f"batch {batch},") for one in settings)]


def unpack(
    entry: Annotated[Path, typer.Argument(help="Folder of an entry with records.tar.xz, or such a file.")],
    out: Annotated[Path, typer.Option(help="Output folder that gets the records.")] = Path("runs"),
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file to name in the commands it prints.")] = None,
) -> None:
    """Put an entry's records where `run` finds them: its table can be made again, and more seeds and methods added.

    Weights do not come along; what needs them is trained anew.
    """
    from adaptive_bench.store.packing import unpack as put
    from adaptive_bench.store.results import PACKED_RECORDS, RUN, digest_in_entry

    folder = entry if entry.is_dir() else entry.parent
    file = entry / PACKED_RECORDS if entry.is_dir() else entry
    if not file.is_file():
        raise UsageError(
            f"What is unpacked is an entry with {PACKED_RECORDS}, or such a file, but there is no {str(file)!r}. Name "
            f"an entry that was submitted with --records."
        )
    config = folder / "config.yaml"
    seeds = _seeds_of(config) if config.is_file() else ()  # before anything is written
    named = read_json(folder / RUN).get("records") if (folder / RUN).is_file() else None
    found = put(file, out, digest_in_entry(file), named if isinstance(named, list) else None)
    typer.echo(f"Unpacked into {out / 'records'}: {found.written} records, {found.known} were there.")
    if found.different:
        typer.echo(
            f"Of those that were there {len(found.different)} file(s) are not the entry's, and stay: "
            f"{found.different[0]}. A table of the entry alone is made in another folder: give --out."
        )
    if seeds:
        options = [part for path in plugin or () for part in ("--plugin", str(path))]
        named = ["--config", str(config), "--out", str(out), *options]
        again = shlex.join(["adaptive-bench", "run", *named])
        typer.echo(f"\nTheir table, made again:\n  {again} --table-only")
        more = ",".join(map(str, [*seeds, max(seeds) + 1]))
        typer.echo(f"\nWith another seed, which alone is trained:\n  {again} --seeds {more}")


def _seeds_of(config: Path) -> list[int]:
    """The seeds of a run by its config.yaml.

    Raises:
        EnvironmentProblem: It is no config of a run.
    """
    from adaptive_bench.store.results import read_run

    about = read_run(config)
    seeds = about.get("seeds")
    if not (isinstance(seeds, list) and seeds and all(type(seed) is int for seed in seeds)):
        why = about.get("problem") or f"Its seeds are {one_line(repr(seeds), 60)}."
        raise EnvironmentProblem(
            f"An entry's config.yaml is that of its run, with a list of seeds, but {str(config)!r} is none. {why} "
            f"Fetch the entry again."
        )
    return seeds


def verify(
    entry: Annotated[
        Path,
        typer.Argument(
            metavar="ENTRY|RUN", parser=named, autocompletion=run_names, help="Folder of an entry; or a run, by name."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder of the runs: trainings are looked for there, or made.")
    ] = DEFAULT_OUT,
    methods: Annotated[
        str | None, typer.Option(help="Only these specs of the entry, where training all takes too long.")
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="How many documents are asked again.")] = 32,
    saving: Annotated[
        float, typer.Option(min=0, max=1, help="Share of saved tokens: the measured point next to it.")
    ] = 0.15,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of documents whose score may differ, for rounding.")
    ] = TOLERATED_SHARE,
    model: Annotated[str | None, typer.Option(help="The model, where the entry names a folder of its author.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with local data files.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:0, ...")] = "auto",
    record: Annotated[
        bool, typer.Option("--record", help="Keep the outcome in the entry's verified.json, for the page to say.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    from_records: Annotated[
        bool,
        typer.Option(
            "--from-records", help="Make its table again from its packed records instead: nothing is measured."
        ),
    ] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="Python file the run was made with.")] = None,
) -> None:
    """Train what an entry says, unless it is there, ask some of its documents again, and compare them one by one.

    Training again on other hardware is like training with another seed: the verdict `alike` says that the mean is one
    the entry's seeds let expect. Exit code 1 if a point differs.
    """
    if from_records and record:
        raise UsageError(
            "--record keeps what was measured again, but --from-records measures nothing. Leave one of them out."
        )
    registry.load_plugins(plugin)
    values, answers, evidence = registry.get("sites", "entry")(entry)
    keep = registry.get("sites", "verified")(entry) if record else None  # before hours of measuring
    load_libraries()
    from pydantic import ValidationError

    from adaptive_bench.config import RunConfig
    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.runs.outcome.verification import verify as measured_again

    given = {"out": out, "device": device, "data_dir": data_dir} | ({"model": model} if model else {})
    try:
        config = RunConfig.model_validate(values | given)
    except ValidationError as error:
        raise UsageError(
            f"An entry's config.yaml is a run's, but this one has {error.error_count()} wrong value(s), the first: "
            f"{rule_of(error.errors()[0])}. It cannot be verified."
        ) from error
    if from_records:
        return _rederived(config, entry, evidence, as_json=as_json)
    if methods is not None:
        config, answers = _only(parse_specs(methods), config, answers)
    with open_reporter() as reporter:
        found = measured_again(
            config, answers, saving=saving, documents=documents, tolerance=tolerance, reporter=reporter
        )
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2))
    else:
        rows = [
            {
                "method": one.method + ("" if one.semantics == "bench" else f"@{one.semantics}"),
                "task": one.task,
                "asked": f"{one.asked:.0%}",
                "equal": f"{one.equal} of {one.documents}",
                "entry": "" if one.claimed is None else f"{one.claimed:.4f}",
                "now": f"{one.found:.4f}",
                "verdict": one.verdict,
            }
            for one in found
        ]
        typer.echo(fitting(rows) if rows else "The entry has no answers of its first seed.")
    if keep is not None:
        typer.echo(f"Kept in {keep([one.to_json() for one in found])}", err=True)
    wrong, alike, known = (
        sum(one.verdict in verdicts for one in found)
        for verdicts in (("differs",), ("alike",), ("holds", "alike", "differs"))
    )
    typer.echo(
        f"{'Differs' if wrong else 'Holds'}: {known - wrong - alike} of {known} points agree in at least "
        f"{1 - tolerance:.0%} of the documents asked again, {alike} more score as another seed may, "
        f"{wrong} differ.",
        err=as_json,
    )
    if wrong or not known:
        raise typer.Exit(1)


def _only(
    specs: Sequence[MethodSpec], config: RunConfig, answers: Sequence[Mapping[str, Any]]
) -> tuple[RunConfig, list[Mapping[str, Any]]]:
    """Some methods of an entry: its configuration with them alone, and their answers."""
    from adaptive_bench.tables.dials import spec_of

    known = {str(MethodSpec.parse(text)): text for text in config.methods}
    for spec in specs:
        if str(spec) not in known:
            raise UsageError(
                f"--methods names specs of the entry, got {str(spec)!r}. {registry.did_you_mean(str(spec), known)}"
            )
    chosen = [str(spec) for spec in specs]
    of_them = [one for one in answers if spec_of(one["method"], one["semantics"]) in chosen]
    return config.model_copy(update={"methods": tuple(known[one] for one in chosen)}), of_them


def _rederived(config: RunConfig, entry: Path, evidence: Any | None, *, as_json: bool) -> None:
    """Say that the table of an entry is what its records give: whoever read the entry held it to them. A run's table is
    compared here.
    """
    from adaptive_bench.runs.rederive import rederive
    from adaptive_bench.store.results import PACKED_RECORDS, read_table

    if not (entry / PACKED_RECORDS).is_file():
        raise UsageError(
            f"A table is made again from the {PACKED_RECORDS} beside it, but {str(entry)!r} has none: it is a run, "
            f"or an entry submitted without --records. Leave --from-records out to train and measure it again."
        )
    if evidence is None:
        found = rederive(config, entry / PACKED_RECORDS, read_table(entry / "table.json"))
        differences, rows, unprojected, sealed = found.differences, found.rows, found.unprojected, found.sealed
        unscored = found.unscored
    else:
        differences, rows, unprojected, sealed = (), len(evidence.rows), evidence.unprojected, evidence.sealed
        unscored = evidence.unscored
    if as_json:
        outcome = {
            "holds": not differences,
            "rows": rows,
            "differences": list(differences),
            "unprojected": list(unprojected),
            "sealed": sealed,
            "unscored": dict(unscored),
        }
        typer.echo(json.dumps(outcome, indent=2, ensure_ascii=False))
        if differences:
            raise typer.Exit(1)
        return
    for line in differences[:_SHOWN]:
        typer.echo(one_line(line))
    if unprojected:
        typer.echo(
            f"Not compared is what {', '.join(unprojected)} would save on another shape: the plugin is not here. "
            f"Give it with --plugin."
        )
    for task, why in unscored.items():
        typer.echo(f"Answers to {one_line(task)} were not scored again, as {why}.")
    if not sealed:
        typer.echo("The entry has no seals of its records, as an earlier version made it: its archive is all there is.")
    if differences:
        typer.echo(f"Differs: {len(differences)} values or rows are not what the records say.")
        raise typer.Exit(1)
    typer.echo(f"Holds: all {rows} rows are what the records say.")


def publish(
    site: Annotated[Path, typer.Argument(help="Folder that `leaderboard build` wrote.")] = Path("site"),
    to: Annotated[str, typer.Option(help="Name or address of a git remote; or a folder to copy to.")] = "origin",
    branch: Annotated[str, typer.Option(help="Branch of the remote.")] = "gh-pages",
    docs: Annotated[
        Path | None,
        typer.Option(help="Site of the documentation (`make docs`: build/docs), published around the board."),
    ] = None,
) -> None:
    """Commit a site to a branch of a git remote, or copy it to a folder. The work tree here is not touched."""
    typer.echo(registry.get("sites", "publish")(site, to, branch, docs))
