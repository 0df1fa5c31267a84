"""Timing records: complete, found again, never mixed; and the runs that use them."""

import dataclasses
import json
import platform
from importlib.metadata import version

import pytest

from adaptive_bench.cli.speed import timing_text
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.sweep import sweep as swept
from adaptive_bench.runs import run
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.timing import TimingRequest, time_specs
from adaptive_bench.source import code_behind
from adaptive_bench.spec import parse_specs
from adaptive_bench.store import timings
from adaptive_bench.store.evaluation import Point
from adaptive_bench.store.timings import TimeCurve

SETTING = {"device": "cpu", "device_name": "A", "threads": 1, "precision": "fp32", "batch": 1, "prompt": 8, "new": 4}


@pytest.fixture
def request_of(model_folder, tmp_path):
    def make(methods="dense,random_skip", **changes):
        values = {
            "model": str(model_folder),
            "batches": (2,),
            "prompt": 8,
            "new": 4,
            "savings": (0.0, 0.5),
            "rounds": 2,
            "device": "cpu",
            "out": tmp_path / "out",
        }
        return TimingRequest(tuple(parse_specs(methods)), **values | changes)

    return make


def _record(out, *, method="mod", date="1", time=0.3, **setting):
    point = {"saved": {"tokens": 0.5}, "saved_time": {"total": time}}
    content = {"method": method, "model_fingerprint": "m", "setting": SETTING | setting, "n": (date, time)}
    return timings.write(out, content, {"date": date, "points": [point]})


def test_a_record_says_what_was_timed_and_is_found_again(request_of, tmp_path):
    records = time_specs(request_of())
    assert [(record["method"], len(record["points"])) for record in records] == [("dense", 1), ("random_skip", 2)]
    first = records[0]
    assert first["setting"]["batch"] == 2 and first["setting"]["device_name"] and first["versions"]["torch"]
    assert (first["weights"], first["tokens"]) == ("untrained", "random")
    files = sorted((tmp_path / "out" / "time").iterdir())
    assert len(files) == 2
    written = json.loads(files[0].read_text())
    assert written in records
    assert time_specs(request_of()) == records, "what is on disk is not measured again"
    assert time_specs(request_of("dense", again=True))[0]["date"] >= first["date"]
    assert max(map(len, timing_text(records).splitlines())) <= 80


def test_settings_are_never_mixed_and_the_newest_record_counts(tmp_path):
    _record(tmp_path, date="1", time=0.1)
    _record(tmp_path, date="2", time=0.2)
    _record(tmp_path, date="0", time=0.3)
    for other in ({"device_name": "B"}, {"threads": 2}, {"batch": 8}, {"precision": "bf16"}, {"new": 5}):
        _record(tmp_path, time=0.9, **other)
    curves = timings.find_curves(tmp_path, "m")
    assert len(curves) == 6
    assert curves["batch 1, 8+4 tokens, 1 thread, A"]["mod"].at(0.5) == 0.2
    assert timings.find_curves(tmp_path, "another model") == {}
    with pytest.raises(UsageError, match="--timing"):
        timings.matching_setting(curves, ["mod"], "m", tmp_path)
    assert list(timings.choose(curves, "batch 8")) == ["batch 8, 8+4 tokens, 1 thread, A"]
    with pytest.raises(UsageError, match="batch 8"):
        timings.choose(curves, "batch 9")


def test_what_cannot_be_timed_and_matching_on_a_time_that_was_not_taken_are_refused(request_of, config_of):
    with pytest.raises(UsageError, match="context of 512"):
        time_specs(request_of("dense", prompt=510))
    with pytest.raises(UsageError, match="adaptive-bench time --model"):
        run(config_of(match_on="time"))


def test_a_run_is_matched_on_its_timing_and_its_checkpoints_can_be_timed(config_of, request_of):
    config = config_of(("dense", "random_skip"), levels=(0.0, 0.1), match_on="time", evaluation={"closeness": 0.03})
    out, fingerprint = config.out, find_backbone(config.model).fingerprint
    for method, ends in (("dense", ((0.0, 0.0),)), ("random_skip", ((0.0, -0.1), (0.9, 0.8)))):
        points = [{"saved": {"tokens": x}, "saved_time": {"total": y}} for x, y in ends]
        content = {"method": method, "model_fingerprint": fingerprint, "setting": SETTING}
        timings.write(out, content, {"date": "1", "points": points})
    outcome = run(config)
    timed = {(row["method"], row["level"]): row for row in outcome.rows if row["axis"] == "time"}
    assert timed["dense", 0.0]["status"] == "ok"
    assert timed["random_skip", 0.1]["status"] == "ok"
    assert timed["random_skip", 0.1]["timing"] == "batch 1, 8+4 tokens, 1 thread, A"
    assert timed["random_skip", 0.1]["saved_tokens"] == pytest.approx(0.2, abs=0.05)
    (record,) = time_specs(dataclasses.replace(request_of("random_skip"), run=config))
    assert record["weights"].startswith("checkpoint ") and "nano_qa_ll" in record["tokens"]


def test_a_timing_of_other_code_weights_or_versions_is_not_used_and_that_is_said(config_of, lines):
    config = config_of("random_skip", levels=(0.0,), train={"steps": 0}, eligible="all")
    right = {
        "method": "random_skip",
        "model_fingerprint": find_backbone(config.model).fingerprint,
        "code": code_behind("random_skip", "timing"),
        "weights": "untrained",
        "versions": {name: version(name) for name in ("torch", "transformers")} | {"python": platform.python_version()},
    }
    others = [
        {},
        {"code": right["code"] | {"engine": 0}},
        {"weights": "checkpoint 0123, seed 1"},
        {"versions": right["versions"] | {"torch": "1.0"}},
    ]
    for batch, other in enumerate(others, 1):
        content = right | other | {"setting": SETTING | {"batch": batch}}
        timings.write(config.out, content, {"date": "1", "points": []})
    (sweep,) = plan(config, lines).sweeps
    assert list(sweep.curves) == [timings.label(SETTING)]
    (line,) = lines.lines
    assert all(f"random_skip (other {why})" in line for why in ("code", "weights", "versions"))


CURVE = TimeCurve.of([(0.5, 0.4), (0.0, -0.1), (0.25, 0.1)])


@pytest.mark.parametrize(
    ("tokens", "time"), [(0.0, -0.1), (0.125, 0.0), (0.25, 0.1), (0.375, 0.25), (0.5, 0.4), (0.51, None), (-0.01, None)]
)
def test_a_curve_is_interpolated_and_not_extrapolated(tokens, time):
    assert CURVE.at(tokens) == (time if time is None else pytest.approx(time))
    # Points with the same saved tokens count as their mean.
    assert TimeCurve.of([(0.0, 0.0), (0.0, 0.2)]).at(0.0) == pytest.approx(0.1)


def test_the_sweep_ends_where_the_timing_ends():
    def measure(asked):
        return Point(asked, 1.0, {"tokens": asked, "time": CURVE.at(asked)})

    found = swept(measure, lambda asked: asked, [0.2], "time", 1.0, 0.01)
    assert min(abs(point.saved["time"] - 0.2) for point in found.values()) < 0.01
    assert list(swept(measure, lambda asked: asked, [0.6], "time", 1.0, 0.01)) == [0.6]
