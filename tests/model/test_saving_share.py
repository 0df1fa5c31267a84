"""`model.saving`: the dial in shares of token-branches."""

import pytest

from adaptive_bench.errors import UsageError

SPECS = ["random_skip", "gateskip", "gateskip[stride=2]", "mod", "calm", "layerskip", "static_depth", "skiplayer"]


@pytest.mark.parametrize("spec", SPECS)
def test_setting_sets_the_dial_and_reading_says_the_claim(spec, shared_model):
    """A dial that counts layers, or was solved for, claims what it can: close to what was asked."""
    model = shared_model(spec)
    assert model.saving == 0.0
    coarse = {"layerskip": 0.13, "static_depth": 0.13, "calm": 0.1, "skiplayer": 0.01}.get(spec, 1e-6)
    for share in (0.1, 0.3):
        model.saving = share
        assert model.dial == model.method.dial_for(share)
        assert model.saving == pytest.approx(share, abs=coarse)
    model.saving = 0
    assert model.dial == model.method.dial.skip_nothing


def test_the_end_of_the_dial(shared_model):
    model = shared_model("gateskip[stride=2]")
    model.dial = model.method.dial.minimum
    assert model.saving == pytest.approx(model.method.max_saved_tokens)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), 15])
def test_impossible_savings(share, shared_model):
    """The error says the range, and that 0.15 is 15 %."""
    with pytest.raises(UsageError, match=r"0\.15 is 15 %"):
        shared_model("random_skip").saving = share
