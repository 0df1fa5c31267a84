"""What is measured on held-out text: the rules that pick layers, and tensors that are kept together."""

from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import Fitted, Streams, layers_to_leave_out, site_scales
from adaptive_bench.method.fitted import angular_distances, block_influence, by_angle, by_loss, by_search

START = torch.tensor([[1.0, 0.0]])


def text(*states):
    """A text of one token, whose stream has these states [H]."""
    rows = [torch.as_tensor(state, dtype=torch.float32).reshape(1, -1) for state in states]
    return SimpleNamespace(streams=lambda: iter([Streams(rows, *torch.tensor([[True], [False]]))]))


def turned(degrees):
    angle = torch.tensor(float(degrees)).deg2rad()
    return torch.stack([angle.cos(), angle.sin()])


def sets(table):
    return [set(row.nonzero()[:, 0].tolist()) for row in table]


@pytest.mark.parametrize(
    ("after", "influence", "angle"),
    [(2 * START, 0.0, 0.0), (START, 0.0, 0.0), (turned(90), 1.0, 0.5), (turned(60), 0.5, 1 / 3), (-START, 2.0, 1.0)],
)
def test_scores_of_one_layer(after, influence, angle):
    """T-BP1, T-SG1: h' = 2 h gives 0 and 0, an identity layer too, orthogonal states 1 and 1/2, 60 degrees 1/2, 1/3."""
    assert block_influence(text(START, after)).tolist() == pytest.approx([influence], abs=1e-6)
    assert float(angular_distances(text(START, after))[0, 1]) == pytest.approx(angle, abs=1e-3)


def test_influence_is_a_mean_over_tokens_and_distance_one_over_the_last_tokens():
    first = Streams(
        [START.repeat(2, 1), torch.stack([turned(90), turned(60)])], *torch.tensor([[False, True], [True, True]])
    )
    second = Streams([START, START], *torch.tensor([[True], [False]]))
    both = SimpleNamespace(streams=lambda: iter([first, second]))
    assert block_influence(both).tolist() == pytest.approx([(1 + 0.5 + 0) / 3])
    assert float(angular_distances(both)[0, 1]) == pytest.approx((1 / 3 + 0) / 2, abs=1e-3)


def test_influence_leaves_out_the_lowest_first():
    """T-SG2: the set of n layers is the first n of argsort(BI); so sets are nested (T-BP3). Ties go to the lower."""
    streams = text(turned(0), turned(50), turned(60), turned(70), turned(150))
    assert block_influence(streams).argsort(stable=True).tolist() == [1, 2, 0, 3]
    table = layers_to_leave_out("bi", streams, None, 4, 1)
    assert sets(table) == [set(), {1}, {1, 2}, {0, 1, 2}, {0, 1, 2, 3}]


def test_angular_leaves_out_the_run_that_turns_least():
    """T-BP3: n layers in a row, and the best run of two need not hold the best single layer."""
    # turns: 30, 5, 60, 20, -20: alone layer 1 turns least, of two in a row the last, which turn back
    streams = text(*map(turned, (0, 30, 35, 95, 115, 95)))
    chosen = sets(by_angle(streams))
    assert chosen[0] == set() and chosen[1] == {1} and chosen[2] == {3, 4}
    assert all(len(one) == count and max(one) - min(one) == count - 1 for count, one in enumerate(chosen) if count)


def additive(costs, pairs=()):
    """A loss: what each missing layer costs, and more (or less) for some pairs."""

    def loss(skipped):
        return sum(costs[layer] for layer in skipped) + sum(
            extra for pair, extra in dict(pairs).items() if set(pair) <= skipped
        )

    return loss


def test_greedy_deletion_and_what_a_search_finds_beyond_it():
    """Layer 0 alone costs least, but 1 and 2 together less than 0 with either: greedy keeps 0 out for good."""
    loss = additive([1.0, 2.0, 2.0, 9.0], {(1, 2): -3.5})
    assert sets(by_loss(loss, 4)) == [set(), {0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]
    assert sets(by_search(loss, 4, budget=6))[2] == {1, 2}  # all six sets
    assert sets(by_search(loss, 4, budget=5))[2] == {1, 2}  # an exchange
    assert sets(by_search(loss, 4, budget=1))[2] == {0, 1}  # nothing left to try with


LOSSES = st.lists(st.floats(0, 10), min_size=32, max_size=32)


@settings(deadline=None, max_examples=40)
@given(LOSSES, st.integers(1, 12))
def test_a_search_is_never_worse_than_greedy_deletion_and_spends_no_more_than_its_budget(values, budget):
    """Whatever the losses of the 32 sets of five layers are; with the budget of all sets it finds the best of each."""
    asked = []

    def loss(skipped):
        asked.append(skipped)
        return values[sum(1 << layer for layer in skipped)]

    greedy = by_loss(loss, 5)
    of_greedy = len(asked)
    assert of_greedy == 5 * 6 // 2
    asked.clear()
    found = by_search(loss, 5, budget)
    assert len(asked) <= of_greedy + 4 * budget  # sets of 0 and of all five layers are known
    for count, (chosen, plain) in enumerate(zip(sets(found), sets(greedy), strict=True)):
        assert len(chosen) == len(plain) == count
        assert loss(frozenset(chosen)) <= loss(frozenset(plain))
        if budget >= 10:
            assert loss(frozenset(chosen)) == min(loss(frozenset(one)) for one in combinations(range(5), count))


def test_scales_by_hand():
    """T-DA1, T-DA3: h' = 2 h gives 2; h' orthogonal to h gives 0, whatever its length; nothing to scale gives 1."""
    orthogonal = torch.tensor([0.0, 7.0])
    scales = site_scales(text(START, 2 * START, orthogonal, [0.0, 0.0], START))
    assert scales.tolist() == pytest.approx([2.0, 0.0, 0.0, 1.0])


def test_scales_are_least_squares_over_all_tokens():
    """T-DA4: sum <h, h'> / sum <h, h> over tokens, in whatever order and however they are cut into batches."""
    generator = torch.Generator().manual_seed(0)
    before, after = torch.randn(2, 30, 8, generator=generator)
    whole = SimpleNamespace(streams=lambda: iter([Streams([before, after], *torch.zeros(2, 30, dtype=torch.bool))]))
    order = torch.randperm(30, generator=generator)
    parts = [
        Streams([before[chosen], after[chosen]], *torch.zeros(2, 10, dtype=torch.bool)) for chosen in order.split(10)
    ]
    solved = torch.linalg.lstsq(before.double().reshape(-1, 1), after.double().reshape(-1, 1)).solution
    assert site_scales(whole).tolist() == pytest.approx(solved[0].tolist())
    assert site_scales(SimpleNamespace(streams=lambda: iter(parts))).tolist() == pytest.approx(solved[0].tolist())


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
