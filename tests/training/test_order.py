from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import SilentReporter
from adaptive_bench.training.encoding import encode_examples
from adaptive_bench.training.order import DataOrder, order_digest


@given(count=st.integers(1, 40), batch_size=st.integers(1, 12), steps=st.integers(1, 12), seed=st.integers(0, 99))
def test_every_example_is_seen_equally_often(count, batch_size, steps, seed):
    order = DataOrder(count, batch_size, steps, seed)
    seen = Counter(index for step in range(steps) for index in order[step])
    assert sum(seen.values()) == steps * batch_size
    times = [seen[index] for index in range(count)]
    assert max(times) - min(times) <= 1


def test_a_step_can_be_asked_for_directly():
    first, again = DataOrder(7, 4, 10, 3), DataOrder(7, 4, 10, 3)
    in_turn = [first[step] for step in range(10)]
    assert [again[step] for step in reversed(range(10))] == in_turn[::-1]
    assert [DataOrder(7, 4, 10, 4)[step] for step in range(10)] != in_turn
    with pytest.raises(IndexError):
        first[10]


def test_the_digest_tells_orders_and_tokens_apart(examples, tokenizer):
    encoded = encode_examples(examples, tokenizer, 64, SilentReporter())
    order = DataOrder(len(encoded), 4, 6, 1)
    digest = order_digest(encoded, order)
    assert digest == order_digest(encoded, DataOrder(len(encoded), 4, 6, 1))
    assert digest != order_digest(encoded, DataOrder(len(encoded), 4, 6, 2))
    assert digest != order_digest(encoded[::-1], order)


def test_no_examples_is_an_error():
    with pytest.raises(EnvironmentProblem, match="at least one example"):
        DataOrder(0, 4, 6, 1)
