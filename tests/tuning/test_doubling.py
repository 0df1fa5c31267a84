"""What twice the training changes: orders that reverse, scores that move."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.tables.document_scores import DocumentScores
from adaptive_bench.task import metric_of
from adaptive_bench.tuning.presets import doubling, enough_steps

EXACT, BITS = metric_of("exact_match,strict-match"), metric_of("bits_per_byte,none")
DOCUMENTS = 60
_ORDER = np.random.default_rng(0).permuted(np.tile(np.arange(DOCUMENTS), (9, 1)), axis=1)


def _scores(shares):
    """Of one seed; each method is right on that share of the documents, on others than its neighbour."""
    return {
        name: DocumentScores((1,), tuple(range(DOCUMENTS)), (_ORDER[[place]] < share * DOCUMENTS).astype(float))
        for place, (name, share) in enumerate(shares.items())
    }


def _found(before, after, steps=320, task="a"):
    return doubling(steps, task, _scores(before), _scores(after), EXACT)


UNDER_TRAINED = {"gateskip": 0.2, "mod": 0.6, "calm": 0.6}
TRAINED = {"gateskip": 1.0, "mod": 0.6, "calm": 0.6}


def test_an_under_trained_method_reverses_an_order_and_is_not_converged():
    found = _found(UNDER_TRAINED, TRAINED)
    assert set(found.reversals) == {("mod", "gateskip"), ("calm", "gateskip")}
    assert found.not_converged == ("gateskip",)
    assert found.told_apart == (2, 2) and found.pairs == 3


def test_what_improves_without_passing_anybody_is_not_converged_and_reverses_nothing():
    found = _found({"gateskip": 0.2, "mod": 0.95}, {"gateskip": 0.6, "mod": 0.95})
    assert (found.reversals, found.not_converged) == ((), ("gateskip",))


def test_what_no_test_tells_apart_does_not_reverse():
    assert _found({"gateskip": 0.5, "mod": 0.55}, {"gateskip": 0.55, "mod": 0.5}).reversals == ()


def test_lower_is_better_where_it_is_and_scores_without_bounds_are_compared():
    def bits(**means):
        spread = np.linspace(-0.1, 0.1, 20)
        return {name: DocumentScores((1,), tuple(range(20)), (mean + spread)[None]) for name, mean in means.items()}

    found = doubling(320, "text", bits(one=1.2, other=2.0), bits(one=1.2, other=1.1), BITS)
    assert found.reversals == (("one", "other"),)


def test_a_method_that_reaches_the_level_on_one_side_alone_is_not_compared():
    found = _found({"gateskip": 0.2, "mod": 0.6}, {"mod": 0.6, "calm": 1.0})
    assert (found.not_converged, found.pairs, found.reversals) == ((), 0, ())


def test_one_score_alone_tells_nothing():
    one = {name: DocumentScores((1,), (0,), np.array([[value]])) for name, value in (("a", 0.0), ("b", 1.0))}
    found = doubling(320, "a", one, one, EXACT)
    assert (found.pairs, found.told_apart, found.not_converged) == (0, (0, 0), ())
    assert enough_steps([found]) is None


def test_where_no_order_is_found_it_cannot_be_said_to_last():
    nothing_yet = dict.fromkeys(TRAINED, 0.0)
    assert enough_steps([_found(nothing_yet, nothing_yet)]) is None
    assert enough_steps([_found(nothing_yet, TRAINED)]) is None
    assert enough_steps([_found(TRAINED, TRAINED), _found(nothing_yet, TRAINED, task="b")]) is None
    assert enough_steps([_found(TRAINED, TRAINED), _found(nothing_yet, nothing_yet, task="b")]) == 320


def test_enough_is_the_least_at_which_no_task_reverses():
    first, second = _found(UNDER_TRAINED, TRAINED), _found(TRAINED, TRAINED, 640)
    assert enough_steps([first, second]) == 640
    assert enough_steps([second, first]) == 640
    assert enough_steps([_found(TRAINED, TRAINED), second]) == 320
    assert enough_steps([_found(TRAINED, TRAINED), _found(UNDER_TRAINED, TRAINED, task="b"), second]) == 640
    assert enough_steps([first, _found(TRAINED, UNDER_TRAINED, 640)]) is None
    assert enough_steps([]) is None


SHARES = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), min_size=2, max_size=6)


@settings(deadline=None)
@given(st.tuples(SHARES, SHARES))
def test_an_order_reverses_alike_in_both_directions(shares):
    count = min(map(len, shares))
    before, after = (dict(zip("abcdef"[:count], one, strict=False)) for one in shares)
    found, back = _found(before, after), _found(after, before)
    assert {pair[::-1] for pair in back.reversals} == set(found.reversals)
    assert back.not_converged == found.not_converged
    for one, other in found.reversals:
        assert before[one] > before[other] and after[one] < after[other]
    assert _found(before, before).reversals == () and _found(before, before).not_converged == ()
