"""Sweeps with the saved time of their methods: timings of the same code, weights and versions as their points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from platform import python_version
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.source import FLOORS
from adaptive_bench.store import timings
from adaptive_bench.store.timings import TimeCurves

_VERSIONS = ("torch", "transformers", "python")  # of this package `code` says what matters


def timed(config: RunConfig, sweeps: Sequence[DialEvaluation], reporter: Reporter) -> list[DialEvaluation]:
    """The same sweeps with their curves: in every setting, or in the one that the run is matched in on time. A timing
    that does not belong to them is left out, and the reporter is told.

    Raises:
        UsageError: The run is matched on time, and there is no one setting that every method was timed in.
    """
    if config.evaluation.quantize != "none":  # timings are of the weights as they were trained
        return list(sweeps)
    curves = {
        model: _curves(config, model, sweeps, reporter)
        for model in dict.fromkeys(str(sweep.training.content.get("backbone")) for sweep in sweeps)
    }
    found = []
    for sweep in sweeps:
        of_model = curves[str(sweep.training.content.get("backbone"))]
        spec = str(sweep.spec)
        known_curves = {name: known[spec] for name, known in of_model.items() if spec in known}
        own = None if sweep.own is None else replace(sweep.own, curves=known_curves)
        found.append(replace(sweep, curves=known_curves, own=own))
    return found


def _curves(config: RunConfig, model: str, sweeps: Sequence[DialEvaluation], reporter: Reporter) -> TimeCurves:
    left_out: dict[tuple[str, str], str] = {}

    def fits(record: Mapping[str, Any]) -> bool:
        ours = [sweep for sweep in sweeps if str(sweep.spec) == record["method"]]
        why = _other(record, ours) if ours else None
        if why is not None:
            left_out[timings.label(record["setting"]), record["method"]] = why
        return why is None

    curves = timings.find_curves(config.out, model, fits)
    missed = {(method, why) for (setting, method), why in left_out.items() if method not in curves.get(setting, ())}
    if missed:
        told = ", ".join(f"{method} (other {why})" for method, why in sorted(missed))
        reporter.line(f"Timings that are not of this run are not used: {told}. Give `adaptive-bench time` again.")
    if config.match_on != "time":
        return curves if config.timing is None else timings.choose(curves, config.timing)
    chosen = timings.choose(curves, config.timing) if curves else curves
    setting = timings.matching_setting(chosen, config.methods, config.model, config.out)
    return {setting: chosen[setting]}


def _other(record: Mapping[str, Any], sweeps: Sequence[DialEvaluation]) -> str | None:
    """What a timing was made with that is not what sweeps of its method are, if anything."""
    code, measured = record.get("code"), sweeps[0].content.get("code")
    if code is not None and measured is not None:
        wanted = {name: value for name, value in measured.items() if name != "evaluation"}
        if code != wanted | {"timing": FLOORS["timing"]}:
            return "code"
    kind, _, name = str(record.get("weights", "")).partition(" ")
    if kind == "checkpoint" and name.partition(",")[0] not in {sweep.training.folder.name for sweep in sweeps}:
        return "weights"
    if (versions := record.get("versions")) is not None:
        known = [about for sweep in sweeps if (about := sweep.record.read("env")) is not None] or [_installed()]
        if not any(all(versions.get(name) == about.get(name) for name in _VERSIONS) for about in known):
            return "versions"
    return None


def _installed() -> dict[str, str]:
    return {"python": python_version()} | {name: version(name) for name in ("torch", "transformers")}
