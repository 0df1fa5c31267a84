"""Methods pass every check on the families that `check` leaves out by default, too."""

import pytest
from covering import covering

from adaptive_bench import registry
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.backbones import FAMILIES
from adaptive_bench.testing.suite import Suite

pytestmark = pytest.mark.slow

METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SHARED = {}


@pytest.mark.parametrize(("name", "family"), covering(METHODS, sorted(set(registry.names("families")) - set(FAMILIES))))
def test_a_method_conforms(name, family):
    results = Suite(MethodSpec(name), family, shared=SHARED).results()
    assert [result for result in results if result.status == "failed"] == []
