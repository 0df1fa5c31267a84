"""Every method of this distribution passes every check in both semantics and on every family."""

import pytest

from adaptive_bench import registry
from adaptive_bench.spec import SEMANTICS, MethodSpec
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.capabilities import capability_matrix, stored_matrix
from adaptive_bench.testing.suite import Suite

METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SHARED = {}


@pytest.mark.parametrize("semantics", SEMANTICS)
@pytest.mark.parametrize("name", METHODS)
def test_every_check_passes_and_the_stored_capabilities_are_true(name, semantics):
    """`adaptive-bench check --all --capabilities methods/capabilities.json` writes what is stored."""
    spec = MethodSpec(name, semantics=semantics)
    results = [result for family in FAMILIES for result in Suite(spec, family, shared=SHARED).results()]
    assert [result for result in results if result.status == "failed"] == []
    assert capability_matrix(results) == {str(spec): stored_matrix(name)[str(spec)]}
