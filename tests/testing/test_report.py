"""What comes out of many checks: table, JSON and capability matrix."""

import json

import pytest

from adaptive_bench.capabilities import CAPABILITIES, stored_matrix
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.check_definition import Result
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.report import Report, capability_matrix, check_specs, write_matrix


@pytest.fixture(scope="module")
def dense_report():
    return check_specs([MethodSpec("dense")], ["llama", "gemma2"])


def test_the_report_of_a_sound_method(dense_report):
    assert dense_report.failures == [] and dense_report.warnings == ()
    assert len(dense_report.results) == 2 * len(CHECKS)
    text = dense_report.table()
    assert max(map(len, text.splitlines())) <= 80
    assert all(check.name in text for check in CHECKS)
    (row,) = [line.split() for line in text.splitlines() if line.startswith("dense")]
    assert row.count(".") == len(CHECKS) - 4 and row.count("-") == 4


def test_json_holds_everything(dense_report):
    about = json.loads(json.dumps(dense_report.to_json()))
    assert about["passed"] is True
    assert about["checks"].keys() == {check.name for check in CHECKS}
    monotone = next(result for result in about["results"] if result["check"] == "monotone")
    assert monotone == {
        "check": "monotone",
        "spec": "dense",
        "family": "llama",
        "status": "not applicable",
        "message": "the dial has one value only",
        "facts": {},
    }
    assert about["capabilities"]["dense"]["causality"] == "C0"


def test_the_matrix_is_what_the_checks_found(dense_report):
    assert capability_matrix(dense_report.results)["dense"] == {
        "families": "llama, gemma2",
        "identity": "exact",
        "start": "intact",
        "causality": "C0",
        "kv_cache": "exact",
        "batch": "yes",
        "left_padding": "yes",
        "likelihood_effect": "-",
        "generation_effect": "-",
        "decoding_effect": "-",
        "ledger": "yes",
        "saving": "yes",
        "frozen_backbone": "no",
        "calibration": "no",
    }
    assert [capability.key for capability in CAPABILITIES] == list(dense_report.matrix["dense"])


def test_families_that_differ_are_named():
    results = (
        Result("identity", "mine", "llama", "passed", facts={"identity": "exact"}),
        Result("identity", "mine", "gemma2", "passed", facts={"identity": "scaled"}),
        Result("packed", "mine", "gemma2", "failed", "wrong"),
    )
    report = Report(results, (), 0.0)
    assert report.matrix["mine"]["identity"] == "exact (llama), scaled (gemma2)"
    assert report.matrix["mine"]["families"] == "llama"
    assert report.to_json()["passed"] is False


def test_a_matrix_is_found_beside_the_method(tmp_path, monkeypatch, dense_report):
    write_matrix(tmp_path / "capabilities.json", dense_report.matrix | {"other": {}})
    monkeypatch.setattr("adaptive_bench.registry.file_of", lambda group, name: tmp_path / "dense.py")
    assert stored_matrix("dense") == dense_report.matrix
    write_matrix(tmp_path / "capabilities.json", {"other": {"batch": "no"}}, whole=False)  # of others it is kept
    assert stored_matrix("dense") == dense_report.matrix
    (tmp_path / "capabilities.json").unlink()
    assert stored_matrix("dense") == {}
