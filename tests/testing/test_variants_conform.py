"""Every variant of every method passes every check, each on one family, and none is a duplicate of another."""

import pytest

from adaptive_bench import registry
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.model.text_decisions import duplicate_warnings
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.subject import Subject, trained_behaviour
from adaptive_bench.testing.suite import Suite, method_specs

pytestmark = pytest.mark.slow
METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SPECS = [spec for name in METHODS for spec in method_specs(name)]
VARIANTS = [spec for spec in SPECS if spec.params]
SHARED = {}


@pytest.mark.parametrize(("spec", "number"), [(spec, number) for number, spec in enumerate(VARIANTS)], ids=str)
def test_every_check_passes(spec, number):
    results = Suite(spec, FAMILIES[number % len(FAMILIES)], shared=SHARED).results()
    assert [result for result in results if result.status == "failed"] == []


def test_the_matrix_is_stored_for_every_spec():
    stored = {spec for name in METHODS for spec in stored_matrix(name)}
    assert stored == {str(spec) for spec in SPECS}


def test_no_parameter_changes_nothing():
    """Specs that agree, and defaults spelled out, give no warning; the paper's rule of GateSkip and MoD is its own."""
    behaviours = {spec: trained_behaviour(Subject(spec, "llama")) for spec in SPECS}
    assert duplicate_warnings(behaviours) == []
    digests = list(behaviours.values())
    together = {str(spec) for spec, digest in behaviours.items() if digests.count(digest) > 1}
    assert {"dense", "dense@paper", "gateskip[kv=recompute]"} <= together
    assert not {"gateskip@paper", "mod@paper", "router_tuned_mod@paper", "gateskip[loss=l1]"} & together
