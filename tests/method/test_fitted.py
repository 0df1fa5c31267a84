"""What a method measures on held-out text: all of it or nothing, and gone when it is forgotten."""

import pytest
import torch

from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import Fitted


def test_it_is_measured_together_and_comes_back_from_a_file():
    fitted = Fitted("scales", "chosen")
    with pytest.raises(UsageError, match=r"scales, chosen.*Call model\.calibrate"):
        fitted["scales"]
    with pytest.raises(PluginFault, match="got scales"):
        fitted.set(scales=torch.ones(2))
    assert not fitted.is_ready and fitted.state() == {}
    fitted.set(scales=torch.ones(2), chosen=torch.zeros(3))
    other = Fitted("scales", "chosen")
    other.load(fitted.state())
    assert other.is_ready and torch.equal(other["scales"], torch.ones(2))
    fitted.clear()
    assert other.is_ready and not fitted.is_ready
