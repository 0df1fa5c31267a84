"""Methods pass every check on the families that `check` leaves out by default, too."""

import pytest
from covering import covering, each_once

from adaptive_bench import registry
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checks.causality import batching, causality
from adaptive_bench.testing.checks.executors_agree import cached, packed
from adaptive_bench.testing.subject import FAMILIES
from adaptive_bench.testing.suite import Suite

METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
SHARED = {}
SPECS = [
    "dense",
    *(f"random_skip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    *(f"gateskip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    "gateskip[shape=scalar,sharing=shared,input=residual]",
    "gateskip@paper",
    "mod",
    "mod@paper",
]


@pytest.mark.parametrize(("spec", "family"), each_once(SPECS, registry.names("families")))
def test_executors_caches_batches_and_later_text_change_nothing(spec, family):
    """X3, X4, X5, X9, X10, under every KV policy; where a paper's rule looks ahead or around, it is shown to."""
    suite = Suite(MethodSpec.parse(spec), family)
    for check in (packed, batching, causality, cached):
        result = suite.result(check)
        assert result.status == "passed" or (check is cached and "@paper" in spec), result


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family"), covering(METHODS, sorted(set(registry.names("families")) - set(FAMILIES))))
def test_a_method_conforms(name, family):
    results = Suite(MethodSpec(name), family, shared=SHARED).results()
    assert [result for result in results if result.status == "failed"] == []
