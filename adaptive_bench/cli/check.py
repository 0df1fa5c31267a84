"""`adaptive-bench check`, `new-method` and `doctor`: check methods, start a new one, check this machine."""

from __future__ import annotations

import importlib.util
import json
import keyword
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.cli.options import AsJson, Device, Plugins, RecordFile, debugging, names_of, to_folder, writable
from adaptive_bench.cli.terminal_text import load_libraries, paragraph
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import parse_specs
from adaptive_bench.store import atomic

if TYPE_CHECKING:
    from adaptive_bench.spec import MethodSpec
    from adaptive_bench.testing.checking import Result
    from adaptive_bench.testing.suite import Report


def check(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD|SPEC]...",
            autocompletion=names_of("methods"),
            help="Methods (all their variants) or single specs such as `gateskip[shape=scalar]@bench`.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every registered method.")] = False,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Family of `list families` to check on instead of the usual three; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    json_file: RecordFile = None,
    capabilities: Annotated[
        Path | None, typer.Option(parser=writable, help="Write what each spec can do to this file, for `list methods`.")
    ] = None,
    plugin: Plugins = None,
    device: Device = "cpu",
) -> None:
    """Check that methods do what every method has to do.

    Runs on tiny random Llama, Qwen and Gemma-2 models: a second for each spec and family, no network. Exits with 1 if a
    check fails. With --debug an error in a method's code ends the command with its traceback.
    """
    if as_json and json_file is None:
        json_file = output.STDOUT
    if plugin:  # plugins may register the names that are checked next
        load_libraries(plugin)
    for spec in (spec for text in methods or () for spec in parse_specs(text)):
        registry.check_name("methods", spec.name)  # before the libraries load, which takes seconds
    for one in family or ():
        registry.check_name("families", one)
    load_libraries()
    specs = _specs(methods or [], everything)

    import torch

    from adaptive_bench.hardware import find_device
    from adaptive_bench.live_display import Display
    from adaptive_bench.testing.subject import FAMILIES
    from adaptive_bench.testing.suite import check_specs, write_matrix

    place = find_device(device)
    torch.set_num_threads(1)  # tiny matrices: more threads only get in each other's way
    with Display() as reporter:
        report = check_specs(specs, family or FAMILIES, reporter=reporter, debug=debugging(), device=place)
    if json_file is not None:
        output.write_text(json_file, json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    if capabilities is not None:
        # A check of all methods replaces the file, so that specs that no longer exist leave it.
        write_matrix(capabilities, report.matrix, whole=everything)
    _print(report, err=output.is_stdout(json_file) or output.is_stdout(capabilities))
    raise typer.Exit(1 if report.failures else 0)


def _specs(methods: list[str], everything: bool) -> list[MethodSpec]:
    """The specs to check: a bare name stands for all specs of the method, any other text for the specs it names."""
    from adaptive_bench.testing.suite import method_specs

    if everything == bool(methods):  # both or neither
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
    faults: dict[tuple[str, str], list[Result]] = {}  # one fault often fails several checks, on every family
    for result in report.failures:
        faults.setdefault((result.spec, result.message), []).append(result)
    failures = []
    for (spec, message), results in faults.items():
        checks = ", ".join(dict.fromkeys(result.check for result in results))
        families = ", ".join(dict.fromkeys(result.family for result in results))
        failures.append(f"{spec} fails {checks} on {families}: {message}")
    specs = len(report.matrix)
    failing = len({result.spec for result in report.failures})
    passed = f"{specs - failing} of {specs} specs pass ({len(report.results)} checks in {report.elapsed_s:.0f} s)"
    legend = "In the table: `.` passed, `-` does not apply, `F` failed."
    paragraphs = [legend, *failures, passed]
    typer.echo("\n\n".join([report.table(), *map(paragraph, paragraphs)]), err=err)


_TEMPLATES = {
    "method.txt": "{name}.py",
    "test_method.txt": "test_{name}.py",
    "pyproject.txt": "pyproject.toml",
    "readme.txt": "README.md",
}


def new_method(
    name: Annotated[str, typer.Argument(help="Name of the method, like `my_method`: letters, digits, underscores.")],
    to: Annotated[Path | None, to_folder("Folder to make; otherwise one of that name.")] = None,
) -> None:
    """Write a package with a working method, its entry point and its test."""
    _check_name(name)
    folder = to or Path(name)
    write_package(name, folder)
    typer.echo(
        f"Wrote {folder}: {', '.join(target.format(name=name) for target in _TEMPLATES.values())}\n\n"
        f"  cd {folder}\n"
        f"  pytest\n"
        f"  adaptive-bench run --plugin {name}.py --methods {name},gateskip"
    )


def _check_name(name: str) -> None:
    """Refuse names that cannot be a method, a Python module and an entry point at once."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"A method's name starts with a lower-case letter, has only lower-case letters, digits and underscores, "
            f"and is no Python keyword, got {name!r}. Try something like 'my_method'."
        )
    if name in registry.names("methods"):
        raise UsageError(
            f"The method {name!r} exists already ({registry.origin('methods', name)}). Choose another name."
        )
    # The package's pyproject.toml puts its folder on Python's path, where `import json`, say, would find the method.
    if importlib.util.find_spec(name) is not None:
        raise UsageError(
            f"The method's file would hide the installed Python module {name!r}. Choose another name, "
            f"like '{name}_skip'."
        )


def write_package(name: str, folder: Path) -> None:
    """Write the package of a new method into a new folder."""
    if folder.exists():
        raise UsageError(f"A new method gets a new folder, but {str(folder)!r} exists. Name another one with -o.")
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "title": name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
    }
    templates = files("adaptive_bench.cli") / "templates" / "new_method"
    with atomic.new_folder(folder) as temporary:
        for source, target in _TEMPLATES.items():
            # Templates with `$name`, since `str.format` would read the braces of Python and TOML.
            text = Template((templates / source).read_text(encoding="utf-8")).substitute(words)
            (temporary / target.format(name=name)).write_text(text, encoding="utf-8")


_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "lm-eval", "safetensors", "tokenizers")
_Finding = tuple[str, bool | None, str]  # what was checked, whether it is in order (`None`: for information), details


def doctor() -> None:
    """Check versions, devices, network and cache; what one run needs besides is checked by `run --dry-run`."""
    broken = []
    for what, ok, detail in _findings():
        mark = {True: "ok", False: "MISSING", None: "-"}[ok]
        typer.echo(f"{what:16} {mark:8} {detail}")
        broken += [what] if ok is False else []
    if broken:
        raise EnvironmentProblem(f"Not everything is in order: {', '.join(broken)}. The lines above say what to do.")


def _findings() -> Iterator[_Finding]:
    # A generator, so that each line is printed when it is found: torch takes seconds to import, and so may the hub.
    yield "python", None, f"{platform.python_version()} on {platform.platform()}"
    for name in ("adaptive-bench", *_PACKAGES):
        try:
            yield name, True, version(name)
        except PackageNotFoundError:
            yield name, False, "not installed: pip install -c constraints.txt -e ."
    yield _devices()
    yield _hub()
    from huggingface_hub.constants import HF_HUB_CACHE

    exists = "exists" if Path(HF_HUB_CACHE).is_dir() else "is made by the first download"
    yield "cache", None, f"{HF_HUB_CACHE} {exists}"


def _devices() -> _Finding:
    try:
        import torch
    except ImportError as error:
        return "devices", False, f"torch cannot be imported: {error}"
    names = [f"cpu ({torch.get_num_threads()} threads)"]
    for index in range(torch.cuda.device_count()):
        memory_gib = torch.cuda.get_device_properties(index).total_memory / 2**30
        names.append(f"cuda:{index} {torch.cuda.get_device_name(index)} ({memory_gib:.0f} GiB)")
    return "devices", True, ", ".join(names)


def _hub() -> _Finding:
    from adaptive_bench import hub

    answer = hub.ask()
    if answer.answers:
        return "hub", True, f"{answer.endpoint} answers ({answer.detail})"
    what = answer.detail if answer.is_off else f"{answer.endpoint} cannot be reached ({answer.detail})"
    without = "hub ids need --model and --data-dir with local folders; the nano default needs neither"
    return "hub", None, f"{what}; {without}"
