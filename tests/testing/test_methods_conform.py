"""Every method of this distribution passes every check, and can do what its stored capabilities say."""

import pytest

from adaptive_bench import registry
from adaptive_bench.capabilities import stored_matrix
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.subject import FAMILIES
from adaptive_bench.testing.suite import Suite, capability_matrix

pytestmark = pytest.mark.slow
METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SHARED = {}


def assert_conforms(spec, families):
    """`adaptive-bench check --all --capabilities methods/capabilities.json` writes what is stored."""
    results = [result for family in families for result in Suite(spec, family, shared=SHARED).results()]
    assert [result for result in results if result.status == "failed"] == []
    stored = stored_matrix(spec.name)[str(spec)]
    assert capability_matrix(results)[str(spec)] == stored | {"families": ", ".join(families)}


@pytest.mark.parametrize("name", METHODS)
def test_bench_semantics(name):
    assert_conforms(MethodSpec(name), FAMILIES)


@pytest.mark.parametrize("name", METHODS)
def test_paper_semantics(name):
    """On one family each; `check --all` runs the others as well."""
    family = FAMILIES[METHODS.index(name) % len(FAMILIES)]
    assert_conforms(MethodSpec(name, semantics="paper"), [family])
