"""Which checks run, when, and what a failure of one means for the others."""

import pytest

from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing import suite as suite_module
from adaptive_bench.testing.backbones import wide_backbone
from adaptive_bench.testing.check_definition import Check, NotApplicable, Violation
from adaptive_bench.testing.checks import CHECKS
from adaptive_bench.testing.suite import Suite


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
