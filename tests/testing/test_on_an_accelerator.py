"""The conformance suite where an accelerator is pretended: what it checks holds there too, ledger and all, for a
method of each kind. Of every method `tests/engine/test_accelerator.py` writes and trains there."""

import pytest
from covering import KINDS
from pretended_accelerator import DEVICE, pretended

from adaptive_bench import check_specs
from adaptive_bench.spec import MethodSpec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("spec", [*KINDS, "mod@paper", "free@paper"])
def test_conforms(spec):
    with pretended():
        report = check_specs([MethodSpec.parse(spec)], ["llama"], device=DEVICE)
    assert not report.failures
