"""What the tables make of measured points: matching, intervals, tests, ranks. The points are made up."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from adaptive_bench.store.evaluation import Axis, Evaluation, MatchPhase, Sample
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.tables.comparison import Column, holm, paired_difference, rank_intervals
from adaptive_bench.tables.document_scores import DocumentScores, document_values
from adaptive_bench.tables.intervals import UNBOUNDED, interval
from adaptive_bench.tables.matching import flaws
from adaptive_bench.tables.outcome import rows_of

METRIC, RATIO = "exact_match,strict-match", "bits_per_byte,none"
_ASKED = (0.0, 0.1, 0.2, 0.3)
_LEVELS = (0.0, 0.05, 0.1, 0.25, 0.45)
_DOCUMENTS, _SEEDS = 30, (1, 2, 3)
_SHOWN: tuple[tuple[Axis, MatchPhase], ...] = (("tokens", "all"), ("net", "all"), ("core", "decode"))
_COST = {"tokens": 1000.0, "flops": 5e9, "parameters_added": 5.0}
_SKILL = {"gateskip": 0.8, "mod": 0.7, "calm": 0.45}  # share of right answers where nothing is saved


def chance(*about: object) -> float:
    """A number in [0, 1) that looks drawn, the same everywhere."""
    return int(hashlib.sha256(repr(about).encode()).hexdigest()[:12], 16) / 16**12


def of_tables() -> dict[str, Any]:
    """Rows, intervals and tests of three methods, of which one has a control."""
    found: dict[str, Any] = {}
    made = {name: {seed: _sweep(name, seed) for seed in _SEEDS} for name in (*_SKILL, "control")}
    for name in _SKILL:
        sweeps = list(made[name].values())
        controls = [replace(one, method=name, variant="shuffled") for one in made["control"].values()]
        tables = [rows_of([*sweeps, *controls * (name == "gateskip")], *axis) for axis in _SHOWN]
        found[name] = [_told(row.to_json()) for rows, _ in tables for row in rows]
        found[f"{name}, warnings"] = tables[1][1]
    return found | {"tests": _tests(made), "intervals": _intervals(), "matching": _matching()}


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row all that is reckoned; `None` where something is not known."""
    left_out = ("method", "semantics", "task", "made_with", "model", "recipe", "backbone")
    return {name: value for name, value in row.items() if name not in left_out and value is not None}


def _sweep(name: str, seed: int) -> MeasuredSweep:
    points = []
    for asked in _ASKED:
        skill = _SKILL.get(name, 0.6) - asked * (1.5 if name != "calm" else 0.1) + 0.05 * chance(name, seed)
        right = [float(chance(doc) * 0.7 + chance(name, seed, asked, doc) * 0.3 < skill) for doc in range(_DOCUMENTS)]
        texts = ["word " * (1 + doc % 4) for doc in range(_DOCUMENTS)]
        lost = [
            -5.0 * len(text) * (1 + asked) * (0.8 + 0.4 * chance(name, seed, doc)) for doc, text in enumerate(texts)
        ]
        samples = [
            Sample(doc, texts[doc], lost[doc], {}, {METRIC: right[doc], RATIO: 0.0}, right[doc])
            for doc in range(_DOCUMENTS)
        ]
        scores = {
            METRIC: sum(right) / _DOCUMENTS,
            RATIO: sum(-one / math.log(2) for one in lost) / sum(map(len, texts)),
        }
        saved = asked + 0.02 * chance(name, seed, asked)
        savings = {"tokens": saved, "core": 0.9 * saved, "net": 0.9 * saved - 0.02, "executed": 0.9 * saved}
        report = {"saved": savings, "prefill": savings, "decode": {key: 1.1 * one for key, one in savings.items()}}
        known = {"claimed": asked}
        done = Evaluation("made_up", asked, scores, _DOCUMENTS, savings, report, 1.5, 30, 10, 8, 0, 1234, **known)
        points.append(MeasuredPoint.of(asked, done, [METRIC, RATIO], samples))
    training = MeasuredTraining(name, name, seed, cost=_COST, target={"axis": "net", "saving": 0.2})
    about = (name, "made_up", seed, training, None, "test", "", _LEVELS, {}, "torch 1", None, None)
    return MeasuredSweep(*about, points)


def _tests(made: Mapping[str, Mapping[int, MeasuredSweep]]) -> dict[str, Any]:
    scores = {
        name: DocumentScores.of(
            {seed: document_values(METRIC, one.points[1].documents) for seed, one in points.items()}
        )
        for name, points in made.items()
    }
    names = list(scores)
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    family = Column(scores).family(pairs)
    unbounded = Column(scores, UNBOUNDED).family(pairs)
    alone = Column({name: _first_seed(scores[name]) for name in ("mod", "calm")}).family([("mod", "calm")])
    ranks = rank_intervals(names, lambda one, other: family[one, other].apart)
    one, other = (scores[name].values for name in ("gateskip", "mod"))
    return {
        "family": {" ".join(pair): asdict(found) for pair, found in family.items()},
        "unbounded": {" ".join(pair): asdict(found) for pair, found in unbounded.items()},
        "one seed": asdict(alone["mod", "calm"]),
        "paired": asdict(paired_difference(one, other)),
        "ranks": {name: list(found) for name, found in ranks.items()},
        "holm": holm([0.01, 0.04, 0.03, 0.5]),
    }


def _first_seed(scores: DocumentScores) -> DocumentScores:
    return DocumentScores(scores.seeds[:1], scores.documents, scores.values[:1])


def _intervals() -> dict[str, Any]:
    drawn = np.array([[chance("interval", seed, doc) for doc in range(12)] for seed in range(3)])
    tables = {"shares": drawn, "right": (drawn > 0.4) * 1.0, "all right": drawn * 0 + 1, "one seed": drawn[:1] > 0.5}
    found = {name: asdict(interval(table * 1.0)) for name, table in tables.items()}
    return found | {"unbounded": asdict(interval(100 * drawn, UNBOUNDED)), "seeds": asdict(interval(drawn[:, :1]))}


def _matching() -> dict[str, Any]:
    dials: dict[str, Sequence[tuple[float, float, float]]] = {  # dial, saving, score
        "rising": [(0, 0.004, 0.9), (1, 0.1, 0.8), (2, 0.104, 0.7), (3, 0.104, 0.6), (4, 0.3, 0.2)],
        "there and back": [(0, 0.0, 0.9), (1, 0.3, 0.7), (2, 0.1, 0.8)],
        "nothing moves": [(0, 0.0, 0.9), (1, 0.0005, 0.8)],
    }
    found = {}
    axis: Axis = "net"
    for name, measured in dials.items():
        matched = [
            {
                "level": row.level,
                "score": row.score,
                "saving": row.saved,
                "saved": {axis: row.saved},
                "status": row.status,
                "dial": row.dial,
                "seconds": row.seconds,
            }
            for row in rows_of([_matched_sweep(measured, axis)], axis, "all")[0]
        ]
        savings = [(dial, saving) for dial, saving, _ in measured]
        found[name] = {"matched": matched, "flaws": list(flaws(savings)), "end": max(saving for _, saving in savings)}
    return found


def _matched_sweep(measured: Sequence[tuple[float, float, float]], axis: Axis) -> MeasuredSweep:
    """A sweep of one document."""
    unknown = np.array([math.nan])
    points = []
    for dial, saving, score in measured:
        documents = Documents((0,), {METRIC: np.array([score])}, unknown, unknown)
        points.append(MeasuredPoint(dial, dial, 0.0, documents, {METRIC: score}, {axis: saving, "tokens": dial}, {}))
    about = ("mod", "made_up", 1, MeasuredTraining("mod", "mod", 1), None, "test", "", (0.0, 0.1, 0.102, 0.2, 0.35))
    return MeasuredSweep(*about, {}, "torch 1", None, None, points)


def finite(value: Any) -> Any:
    """Plain values with text for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
