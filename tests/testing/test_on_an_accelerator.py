"""The conformance suite where an accelerator is pretended: whatever it checks holds there too, ledger and all."""

import pytest
from pretended_accelerator import DEVICE, pretended

from adaptive_bench import registry
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing import check_specs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("spec", [*registry.names("methods"), "mod@paper", "free@paper"])
def test_conforms(spec):
    with pretended():
        report = check_specs([MethodSpec.parse(spec)], ["llama"], device=DEVICE)
    assert not report.failures
