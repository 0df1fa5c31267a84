"""Timing records: complete, found again, never mixed; and the runs that use them."""

import dataclasses
import json
import platform
from importlib.metadata import version

import pytest

from adaptive_bench.cli.speed import timing_text
from adaptive_bench.errors import UsageError
from adaptive_bench.runs import run
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.timing import TimingRequest, time_specs
from adaptive_bench.spec import parse_specs
from adaptive_bench.store.keys import code_behind
from adaptive_bench.store.measured import TimeCurve
from adaptive_bench.store.records import choose_curves, find_curves, setting_label, write_timing

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
    return write_timing(out, content, {"date": date, "points": [point]})


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
    curves = find_curves(tmp_path, "m")
    assert len(curves) == 6
    assert curves["batch 1, 8+4 tokens, 1 thread, A"]["mod"].at(0.5) == 0.2
    assert find_curves(tmp_path, "another model") == {}
    with pytest.raises(UsageError, match="--timing"):
        choose_curves(curves, "batch 9")
    assert list(choose_curves(curves, "batch 8")) == ["batch 8, 8+4 tokens, 1 thread, A"]


def test_texts_longer_than_the_context_are_refused(request_of):
    with pytest.raises(UsageError, match="context of 512"):
        time_specs(request_of("dense", prompt=510))


def test_the_checkpoints_of_a_run_are_timed_and_the_run_has_their_times_afterwards(config_of, request_of):
    config = config_of("random_skip", levels=(0.0, 0.1))
    run(config)
    (record,) = time_specs(dataclasses.replace(request_of("random_skip", out=config.out), run=config))
    assert record["weights"].startswith("checkpoint ") and "nano_qa_ll" in record["tokens"]
    answers = json.loads((run(config).folder / "answers.json").read_text())
    assert {name for point in answers["sweeps"][0]["points"] for name in point["times"]} == {
        setting_label(record["setting"])
    }


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
        write_timing(config.out, content, {"date": "1", "points": []})
    (sweep,) = plan(config, lines).sweeps
    assert list(sweep.curves) == [setting_label(SETTING)]
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
