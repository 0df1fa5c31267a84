"""A run's list of its own records, written when the run begins. Whoever looks for a result asks it and no key: where a
result is does not depend on the code, the model and the data that are here now. Whether it may be used again does, and
that only a run that computes asks (`planning.plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.planning.cells import Cell, Sweep
from adaptive_bench.runs.planning.plan import Plan, curves_of, without_groups
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.digest import sealed
from adaptive_bench.store.files import read_file
from adaptive_bench.store.records import Record
from adaptive_bench.store.schema import SCHEMA

FILE = "manifest.json"


def write(folder: Path, whole: Plan) -> None:
    """Put the list of a plan's records into the folder of its run."""
    trainings = [
        {
            "record": cell.folder.name,
            "method": str(cell.spec),
            "seed": cell.seed,
            "target": cell.target,
            "only_target": cell.alone,
            "base": None if cell.base is None else cell.base.folder.name,
        }
        for cell in whole.cells
    ]
    evaluations = [
        {
            "record": f"{sweep.cell.folder.name}/eval/{sweep.folder.name}",
            "method": str(sweep.spec),
            "task": sweep.task,
            "split": sweep.split,
            "metric": sweep.metric,
            "levels": list(sweep.levels),
        }
        for sweep in whole.sweeps
    ]
    about = {"schema": SCHEMA, "trainings": trainings, "evaluations": evaluations}
    atomic.update_text(folder / FILE, sealed(atomic.json_text(about)))


def read(folder: Path, config: RunConfig) -> Plan | None:
    """What a run consists of and where it is, from its manifest; `None` where there is none.

    Raises:
        EnvironmentProblem: It is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    about = read_file(folder / FILE)
    if about is None:
        raise EnvironmentProblem(
            f"A run's {FILE} stays as the run wrote it, but that in {str(folder)!r} changed since. Give the run's "
            f"command again: it writes a new one and computes nothing twice."
        )
    return _plan(config, about["trainings"], about["evaluations"])


def of_records(config: RunConfig, keys: Iterable[str]) -> Plan:
    """What a run consists of, put together from what its records say of themselves: of runs without a manifest.

    Args:
        config: The run; records are looked for in its `out`.
        keys: Names of its records.
    """
    config = without_groups(config)
    known = {key: Record(config.out / "records" / key).read("config.json") or {} for key in keys}
    known = {key: about for key, about in known.items() if "method" in about}
    targets: dict[tuple[str, int], int] = {}
    for about in known.values():
        name = about["method"], about["seed"]
        targets[name] = targets.get(name, 0) + ("target" in about)
    trainings = [
        {
            "record": key,
            "method": about["method"],
            "seed": about["seed"],
            "target": about.get("target", {}).get("saving"),
            "only_target": targets[about["method"], about["seed"]] <= 1,
            "base": about.get("base"),
        }
        for key, about in _bases_first(known)
    ]
    asked = {(str(MethodSpec.parse(text)), find_task(name).name) for text in config.methods for name in config.tasks}
    recipe = config.evaluation.model_dump(mode="json", exclude={"grid"})
    evaluations = []
    for key in known:
        for sweep in sorted((config.out / "records" / key / "eval").glob("*-*")):
            about = Record(sweep).read("config.json") or {}
            if (about.get("method"), about.get("task")) in asked and recipe.items() <= about.items():
                task = find_task(about["task"])
                evaluations.append(
                    {
                        "record": f"{key}/eval/{sweep.name}",
                        "method": about["method"],
                        "task": about["task"],
                        "split": about.get("split", "test"),
                        "metric": task.metrics[0],
                        "levels": list(config.levels or task.levels),
                    }
                )
    evaluations.sort(key=lambda one: config.seeds.index(known[one["record"].partition("/")[0]]["seed"]))
    return _plan(config, trainings, evaluations)


def _bases_first(known: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Records in an order in which each comes after the one it starts from."""
    ordered: dict[str, Mapping[str, Any]] = {}

    def put(key: str) -> None:
        if key in known and key not in ordered:
            if (base := known[key].get("base")) is not None:
                put(base)
            ordered[key] = known[key]

    for key in known:
        put(key)
    return list(ordered.items())


def _plan(config: RunConfig, trainings: Iterable[Mapping[str, Any]], evaluations: Iterable[Mapping[str, Any]]) -> Plan:
    config = without_groups(config)
    cells: dict[str, Cell] = {}
    for about in trainings:
        folder = config.out / "records" / about["record"]
        cells[about["record"]] = Cell(
            MethodSpec.parse(about["method"]),
            about["seed"],
            Record(folder).read("config.json") or {},
            folder,
            cells.get(about["base"]),
            about["target"],
            about["only_target"],
        )
    curves = {
        fingerprint: curves_of(config, fingerprint)
        for fingerprint in dict.fromkeys(str(cell.content.get("backbone")) for cell in cells.values())
    }
    sweeps = []
    for about in evaluations:
        cell = cells[about["record"].partition("/")[0]]
        folder = config.out / "records" / about["record"]
        timed = curves[str(cell.content.get("backbone"))]
        by_setting = {name: by_spec[about["method"]] for name, by_spec in timed.items() if about["method"] in by_spec}
        content = Record(folder).read("config.json") or {}
        sweeps.append(
            Sweep(
                MethodSpec.parse(about["method"]),
                about["task"],
                about["metric"],
                tuple(about["levels"]),
                cell,
                config,
                content,
                folder,
                by_setting,
                about["split"],
            )
        )
    return Plan(config, tuple(cells.values()), tuple(sweeps))
