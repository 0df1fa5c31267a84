"""`adaptive-bench check`: is a method sound?"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.completion import specs as specs_of
from adaptive_bench.cli.failures import paragraph
from adaptive_bench.cli.strict import Debug
from adaptive_bench.cli.waiting import load_libraries
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import parse_specs

if TYPE_CHECKING:
    from adaptive_bench.spec import MethodSpec
    from adaptive_bench.testing import Report


def check(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD|SPEC]...",
            autocompletion=specs_of,
            help="Methods (all their variants) or single specs such as `gateskip[shape=scalar]@bench`.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every registered method.")] = False,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Family of `list families` to check on instead of the usual three; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON instead: `-o -`.")] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", parser=output.file, help="Write all results to this JSON file; - for standard output."
        ),
    ] = None,
    capabilities: Annotated[
        Path | None,
        typer.Option(parser=output.file, help="Write what each spec can do to this file, for `list methods`."),
    ] = None,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="Python file that registers methods; may be repeated.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda or cuda:1.")] = "cpu",
    debug: Debug = False,
) -> None:
    """Check that methods do what every method has to do.

    Runs on tiny random Llama, Qwen and Gemma-2 models, a second per spec and family, no network. Exits with 1 if a
    check fails. With --debug an error in a method's code ends the command with its traceback.
    """
    if as_json and json_file is None:
        json_file = output.STDOUT
    if plugin:
        load_libraries()
        registry.load_plugins(plugin)
    for spec in chain.from_iterable(map(parse_specs, methods or [])):
        registry.check_name("methods", spec.name)  # before seconds go by
    for one in family or ():
        registry.check_name("families", one)
    for file in filter(None, (json_file, capabilities)):
        output.check(file)  # before what would be lost is measured
    load_libraries()
    specs = _specs(methods or [], everything)

    import torch

    from adaptive_bench.live_display import open_reporter
    from adaptive_bench.model.hardware import find_device
    from adaptive_bench.testing import check_specs
    from adaptive_bench.testing.backbones import FAMILIES
    from adaptive_bench.testing.report import write_matrix

    place = find_device(device)
    torch.set_num_threads(1)  # tiny matrices: more threads only get in each other's way
    with open_reporter() as reporter:
        report = check_specs(specs, family or FAMILIES, reporter=reporter, debug=debug, device=place)
    if json_file is not None:
        output.write_text(json_file, json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    if capabilities is not None:
        write_matrix(capabilities, report.matrix, whole=everything)
    _print(report, err=output.is_stdout(json_file) or output.is_stdout(capabilities))
    raise typer.Exit(1 if report.failures else 0)


def _specs(methods: list[str], everything: bool) -> list[MethodSpec]:
    """A bare name stands for all specs of the method, anything else for itself."""
    from adaptive_bench.testing.suite import method_specs

    if everything == bool(methods):
        raise UsageError(
            f"check takes methods or --all, got {' '.join(methods) or 'neither'}{' and --all' * everything}. "
            "Try `adaptive-bench check gateskip`."
        )
    texts = registry.names("methods") if everything else methods
    chosen = [
        spec for text in texts for spec in (method_specs(text) if not set(text) & set("[@,") else parse_specs(text))
    ]
    return list(dict.fromkeys(chosen))


def _print(report: Report, *, err: bool) -> None:
    failures = [
        f"{result.spec} fails {result.check} on {result.family}: {result.message}" for result in report.failures
    ]
    specs = len(report.matrix)
    failing = len({result.spec for result in report.failures})
    passed = f"{specs - failing} of {specs} specs pass ({len(report.results)} checks in {report.elapsed_s:.0f} s)"
    legend = "In the table: `.` passed, `-` does not apply, `F` failed."
    paragraphs = [legend, *failures, *(f"Warning: {warning}" for warning in report.warnings), passed]
    typer.echo("\n\n".join([report.table(), *map(paragraph, paragraphs)]), err=err)
