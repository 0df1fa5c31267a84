"""`adaptive-bench list`: lists methods, tasks, models, families, configs, runs and config keys."""

from __future__ import annotations

import ast
import inspect
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

from adaptive_bench import registry
from adaptive_bench.capabilities import CAPABILITIES, Matrix, stored_matrix
from adaptive_bench.cli.options import DEFAULT_OUT, AsJson, Out, Plugins, check_goes_with, names_of
from adaptive_bench.cli.terminal_text import in_parts, listed, load_libraries, wrapped
from adaptive_bench.errors import UsageError, one_line
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.atomic import json_text
from adaptive_bench.store.runs import check_output, read_run, run_folders, run_name
from adaptive_bench.task import OpenTask, Task, TaskGroup, check_registered

Listed = Literal["methods", "tasks", "models", "families", "configs", "runs", "keys"]
_TO_THE_MINUTE = len("2026-11-21T19:20")
_TITLES = {"description": "what it is", "origin": "from"}  # titles that columns of the JSON have in a table


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    what = str(ctx.params.get("what"))
    return names_of(cast(registry.Group, what))(incomplete) if what in get_args(registry.Group) else []


def list_names(
    what: Annotated[Listed, typer.Argument(help=f"{', '.join(get_args(Listed))}.")],
    name: Annotated[
        str | None, typer.Argument(autocompletion=_names, help="One of them, to show all that is known of it.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Of methods also parameters, and a table of what each can do.")
    ] = False,
    out: Out = DEFAULT_OUT,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List methods, tasks, models, families, configs, runs or keys of a config, or show all that is known of one.

    Runs are listed newest first. In JSON numbers are numbers, and null stands for what is unknown or does not apply.
    """
    check_goes_with("--full", full, "`list methods`", what == "methods")
    if plugin:
        load_libraries(plugin)
    brief = what == "methods" and name is None and not (full or as_json)  # can be had from source files alone
    rows: Sequence[Mapping[str, Any]]
    if what == "runs":
        check_output(out)
        rows = runs_in(out)
    elif what == "keys":
        rows = _config_keys()
    else:
        rows = _brief_methods() if brief else _registered(cast(registry.Group, what))
    if name is not None:
        rows = _only(rows, what, name)
    if as_json:
        typer.echo(json_text(rows), nl=False)
        return
    if not rows:
        typer.echo(f"There are no {what} yet.")
        return
    shown = [{_TITLES.get(key, key): _text(key, row[key]) for key in row if key != "folder"} for row in rows]
    typer.echo(listed(shown))
    if brief:
        typer.echo("\n`adaptive-bench list methods NAME` shows all of one method, --full all of each.")
    elif what == "methods":
        typer.echo("\n" + _capability_table([row["name"] for row in rows]))


def _only(rows: Sequence[Mapping[str, Any]], what: Listed, name: str) -> list[Mapping[str, Any]]:
    """The row with one name, or the rows of a section of keys."""
    key = "run" if what == "runs" else "name"
    # A run outside the default output folder is listed as `<folder>/<name>`.
    if found := [row for row in rows if row[key] == name or (what == "runs" and Path(row[key]).name == name)]:
        return found
    if what == "keys" and (section := [row for row in rows if row[key].startswith(f"{name}.")]):
        return section
    hint = registry.did_you_mean(name, [row[key] for row in rows])
    raise UsageError(f"`list {what} NAME` takes one of `list {what}`, got {one_line(name, 60)!r}. {hint}")


def runs_in(out: Path) -> list[dict[str, Any]]:
    """The runs in a folder, newest first. A damaged run is listed with its problem."""
    return [
        {
            "run": run_name(folder),
            "state": about.get("state", "unfinished"),
            "model": about.get("model", ""),
            "methods": about.get("methods", []),
            "tasks": about.get("tasks", []),
            "seeds": about.get("seeds", []),
            "steps": about.get("train", {}).get("steps"),
            "documents": about.get("evaluation", {}).get("limit"),
            "shots": about.get("evaluation", {}).get("num_fewshot"),
            "date": str(about.get("finished") or about.get("began") or "")[:_TO_THE_MINUTE].replace("T", " "),
            "problem": about.get("problem", ""),
            "folder": str(folder),
        }
        for folder, about in ((folder, read_run(folder / "config.yaml")) for folder in run_folders(out))
    ]


def _brief_methods() -> list[dict[str, Any]]:
    """Method names with descriptions.

    Descriptions of this distribution's methods are read from source files, because importing them loads PyTorch, which
    takes seconds. Plugins are imported, because their code may make descriptions in any way.
    """
    known = {name: description_in_source(name) for name in registry.names("methods")}
    if not all(known.values()):
        load_libraries()
    return [
        {"name": name, "description": text or _first_sentence(_thing("methods", name))} for name, text in known.items()
    ]


def description_in_source(method: str) -> str | None:
    """First line of the docstring of a method's class; `None` for a plugin's."""
    target, file = registry.target_of("methods", method), registry.file_of("methods", method)
    if target is None or file is None or registry.is_foreign("methods", method):
        return None
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef) and statement.name == target[1]:  # the attribute of the entry point
            return (ast.get_docstring(statement) or "").partition("\n")[0]
    return None


def _registered(group: registry.Group) -> list[dict[str, Any]]:
    if group in ("methods", "families"):  # their modules import PyTorch
        load_libraries()
    return [_facts(group, name) | {"origin": registry.origin(group, name)} for name in registry.names(group)]


def _facts(group: registry.Group, name: str) -> dict[str, Any]:
    thing = _thing(group, name)
    facts: dict[str, Any] = {"name": name, "description": _first_sentence(thing)}
    if group == "methods":
        facts["parameters"] = list(thing.Config.model_fields)
    elif isinstance(thing, TaskGroup):
        members = ", ".join(thing.members)
        facts |= {"kind": "group", "shots": None, "chance": None}
        facts |= {"source": members, "licence": None, "training_text": None}
    elif isinstance(thing, OpenTask):
        facts |= {"kind": f"{thing.name}:DATA", "shots": 0, "chance": None}
        facts |= {"source": "any", "licence": None, "training_text": None}
    elif isinstance(thing, Task):
        facts |= {"kind": thing.kind, "shots": thing.num_fewshot}
        facts |= {"chance": thing.chance if math.isfinite(thing.chance) else None}
        facts |= {"source": thing.source, "licence": thing.licence, "training_text": thing.text_source or None}
    return facts


def _thing(group: registry.Group, name: str) -> Any:
    if group == "configs":
        from adaptive_bench.config import preset_file

        return preset_file(name)
    if group == "tasks":
        return check_registered(name, registry.get(group, name), registry.origin(group, name))
    if group != "methods":
        return registry.get(group, name)
    from adaptive_bench.method import method_class

    return method_class(MethodSpec(name))


def _first_sentence(thing: object) -> str:
    """A plugin's own description: a task's field, a preset's first comment, or a docstring's first line."""
    if isinstance(thing, Path):
        return thing.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
    description = getattr(thing, "description", None)
    return description if isinstance(description, str) else (inspect.getdoc(thing) or "").partition("\n")[0]


def _config_keys() -> list[dict[str, Any]]:
    """Every key of config files and `--set` that has a value, with the default that holds if it is not named."""
    from adaptive_bench.config import keys, part_of

    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value

    return [
        {
            "name": path,
            "description": str(field.description).replace("\n", " "),
            "required": field.is_required(),
            "default": None if field.is_required() else plain(field.default),
        }
        for path, field in keys().items()
        if part_of(field) is None or field.description  # a part such as `train` has no value of its own
    ]


def _text(key: str, value: Any) -> str:
    if key == "default":  # shown as it would be written in YAML
        value = json.dumps(value) if value in ([], {}, None) or isinstance(value, bool) else value
    if key == "required":
        return "yes" if value else ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:.2g}" if key == "chance" else str(value)


def _capability_table(methods: Sequence[str]) -> str:
    """The capabilities of the methods' plain specs, and of their paper semantics if those differ.

    Capabilities that differ between specs are shown as a table, shared ones as a line.
    """
    probed = {name: stored_matrix(name) for name in methods}
    rows: Matrix = {}
    for name, matrix in probed.items():
        for spec, row in matrix.items():
            # `name` comes before `name@paper`, which gets a row of its own only where it differs.
            if not MethodSpec.parse(spec).params and row != rows.get(name):
                rows[spec] = row
    parts = []
    if rows:
        values = {one: {row.get(one.key, "-") for row in rows.values()} for one in CAPABILITIES}
        titles = {one.key: one.title for one in values if len(values[one]) > 1}
        shared = [f"{one.title} {found.pop()}" for one, found in values.items() if len(found) == 1]
        parts.append("What each can do, as found by `adaptive-bench check`:")
        if titles:
            table = [
                {"": spec} | {title: row.get(key, "-") for key, title in titles.items()} for spec, row in rows.items()
            ]
            parts.append(in_parts(table))
        if shared:
            parts.append(wrapped(f"{'The same for all: ' if len(rows) > 1 else ''}{'; '.join(shared)}."))
    if missing := [name for name, matrix in probed.items() if not matrix]:
        parts.append(wrapped(f"Not probed yet: {', '.join(missing)}. `adaptive-bench check NAME` does it."))
    return "\n\n".join(parts)
