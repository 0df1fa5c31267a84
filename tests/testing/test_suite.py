"""Which checks run, when, and what a failure of one means for the others."""

import json
from collections.abc import Mapping
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from adaptive_bench import check_specs
from adaptive_bench.capabilities import CAPABILITIES, stored_matrix
from adaptive_bench.method import Method, MethodConfig
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing import suite as suite_module
from adaptive_bench.testing.checking import Check, NotApplicable, Result, Violation
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.subject import wide_backbone
from adaptive_bench.testing.suite import Report, Suite, capability_matrix, method_specs, variants, write_matrix


@pytest.fixture
def run(monkeypatch):
    """`run(checks, spec, shared)`: results of these checks instead of the real ones, by name."""

    def run(checks, spec="dense", shared=None):
        monkeypatch.setattr(suite_module, "CHECKS", checks)
        suite = Suite(MethodSpec.parse(spec), "llama", shared=shared)
        return {result.check: result for result in suite.results(checks)}

    return run


def fails(subject):
    raise Violation("broken")


def passes(subject):
    return {"fact": True}


def test_checks_are_told_apart_and_explain_themselves():
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))
    for position, each in enumerate(CHECKS):
        assert each.asserts.endswith(".") and len(each.asserts) > 30 and "  " not in each.asserts
        assert set(each.needs) <= set(names[:position])


def test_what_needs_a_failed_check_does_not_apply_and_what_needs_one_that_does_not_apply_runs(run):
    def does_not_apply(subject):
        raise NotApplicable("no dial", batch=False)

    needing = (Check("b", "", passes, ("a",)), Check("c", "", passes, ("b",)))
    results = run((Check("a", "", fails), *needing))
    assert {name: (one.status, one.message) for name, one in results.items()} == {
        "a": ("failed", "broken"),
        "b": ("not applicable", "needs a"),
        "c": ("not applicable", "needs b"),
    }
    results = run((Check("a", "", does_not_apply), *needing))
    assert (results["a"].status, results["a"].facts) == ("not applicable", {"batch": False})
    assert (results["c"].status, results["c"].facts) == ("passed", {"fact": True})


def test_rounding_has_to_strike_twice(run):
    """A decision flipped by rounding on one text is no violation; one seen on both texts is."""
    texts = []

    def fails_on_the_first_text(subject):
        texts.append(subject.text(5).input_ids.tolist())
        if subject.texts == 0:
            raise Violation("flip")
        return {}

    checks = (
        Check("flip", "", fails_on_the_first_text, rounding=True),
        Check("exact", "", fails_on_the_first_text),
        Check("real", "", fails, rounding=True),
    )
    statuses = {name: result.status for name, result in run(checks).items()}
    assert statuses == {"flip": "passed", "exact": "failed", "real": "failed"}
    assert texts[0] != texts[1] and texts[2] == texts[0]


def test_specs_trained_alike_share_checks_of_training(run):
    seen = []

    def trains(subject):
        seen.append(str(subject.spec))
        return {}

    shared = {}
    for spec in ("gateskip", "gateskip[kv=evict]", "gateskip[loss=l1]"):
        result = run((Check("trains", "", trains, of_training=True),), spec, shared)["trains"]
        assert result.spec == spec
    assert seen == ["gateskip", "gateskip[loss=l1]"]


def test_models_and_texts_lie_on_the_device_that_is_given():
    subject = Suite(MethodSpec("gateskip"), "llama", device="meta").subject
    assert {tensor.device.type for tensor in subject.build().state_dict().values()} == {"meta"}
    assert subject.backbone(wide_backbone).device.type == subject.text(5, 3).attention_mask.device.type == "meta"
    assert Suite(MethodSpec("gateskip"), "llama").subject.build().device.type == "cpu"


# What comes out of many checks: table, JSON and capability matrix.


@pytest.fixture(scope="module")
def dense_report():
    return check_specs([MethodSpec("dense")], ["llama", "gemma2"])


def test_the_report_of_a_sound_method(dense_report):
    assert dense_report.failures == []
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
    report = Report(results, 0.0)
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


class ManyKinds(MethodConfig):
    companions: ClassVar[Mapping[str, str]] = {"shape=round": "every=3"}
    unsound: ClassVar[frozenset[str]] = frozenset({"shape=bent"})
    shape: Literal["flat", "round", "square", "bent"] = "flat"
    open_: Literal["a", "b"] | None = None
    gated: bool = True
    every: int = Field(2, examples=[2, 4])
    weight: float = 0.5


class Many(Method):
    Config = ManyKinds


def test_each_parameter_with_few_values_varies_alone(register_method):
    register_method(Many, "many")
    assert [str(spec) for spec in variants("many")] == [
        "many[every=3,shape=round]",
        "many[shape=square]",
        "many[open_=a]",
        "many[open_=b]",
        "many[gated=false]",
        "many[every=4]",
    ]
    assert [str(spec) for spec in method_specs("many")[:2]] == ["many", "many@paper"]


def test_every_ablation_axis_of_gateskip_is_there():
    """The rows of the paper's ablation table, the axes of the released code, and what we add."""
    axes = {key for spec in variants("gateskip") for key, _ in spec.params}
    assert axes == {
        *("shape", "sharing", "architecture", "placement", "loss", "skip_unit", "skip_modules", "stride", "frozen"),
        *("input", "detach", "kv", "compensate"),
    }
