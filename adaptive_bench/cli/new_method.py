"""`adaptive-bench new-method`: a package with a working method, ready to be changed into your own."""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from adaptive_bench import output, registry
from adaptive_bench.errors import EnvironmentProblem, UsageError

_TEMPLATES = {
    "method.txt": "{name}.py",
    "test_method.txt": "test_{name}.py",
    "pyproject.txt": "pyproject.toml",
    "readme.txt": "README.md",
}


def new_method(
    name: Annotated[str, typer.Argument(help="Name of the method, like `my_method`: letters, digits, underscores.")],
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=output.new_folder, help="Folder to make; otherwise one of that name."),
    ] = None,
) -> None:
    """Write a package with a working method, its entry point and its test."""
    check_name(name)
    folder = to or Path(name)
    write_package(name, folder)
    typer.echo(
        f"Wrote {folder}: {', '.join(target.format(name=name) for target in _TEMPLATES.values())}\n\n"
        f"  cd {folder}\n"
        f"  pytest\n"
        f"  adaptive-bench run --plugin {name}.py --methods {name},gateskip"
    )


def check_name(name: str) -> None:
    """Refuse names that cannot be a method, a Python module and an entry point at once.

    Raises:
        UsageError: Wrong form, or taken by a method or a module.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"A method's name starts with a lower-case letter, goes on with such letters, digits and underscores, "
            f"and is no Python keyword, got {name!r}. Try something like 'my_method'."
        )
    if name in registry.names("methods"):
        raise UsageError(
            f"The method {name!r} exists already ({registry.origin('methods', name)}). Choose another name."
        )
    if importlib.util.find_spec(name) is not None:
        raise UsageError(
            f"The method's file would hide the installed Python module {name!r}. Choose another name, "
            f"like '{name}_skip'."
        )


def write_package(name: str, folder: Path) -> None:
    """Write the package into a new folder.

    Raises:
        UsageError: Something is there already.
        EnvironmentProblem: The folder cannot be written.
    """
    if folder.exists():
        raise UsageError(f"A new method gets a new folder, but {str(folder)!r} exists. Name another one with -o.")
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "title": name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in name.split("_")),
    }
    templates = files("adaptive_bench.cli") / "templates" / "new_method"
    try:
        folder.mkdir(parents=True)
        for source, target in _TEMPLATES.items():
            text = Template((templates / source).read_text(encoding="utf-8")).substitute(words)
            (folder / target.format(name=name)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(
            f"The folder {str(folder)!r} must be writable: {error}. Name another one with -o."
        ) from error
