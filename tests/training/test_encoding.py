"""What a training reads: examples as tokens with labels, in one order for every method."""

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.progress import SilentReporter
from adaptive_bench.task import Example
from adaptive_bench.training.encoding import (
    DataOrder,
    calibration_batches,
    encode_examples,
    order_digest,
    padding_id,
    training_batch,
)


def encode(tokenizer, *examples, max_length=64, reporter=None):
    return encode_examples(examples, tokenizer, max_length, reporter or SilentReporter())


def test_the_completion_is_learned_with_an_end_and_the_prompt_is_not(tokenizer):
    encoded = encode(tokenizer, Example("1+1=", " 2"))
    batch = training_batch(encoded, pad_id=0)
    learned = batch["labels"][0] != -100
    assert tokenizer.decode(batch["input_ids"][0][learned]) == " 2</s>"
    assert tokenizer.decode(batch["input_ids"][0]) == "1+1= 2</s>"
    assert encoded[0].loss_tokens == 3


def test_the_last_token_is_a_label_and_never_read(tokenizer):
    """In decoding nothing follows the end token either; what a method shares out among tokens leaves it out."""
    encoded = encode(tokenizer, Example("1+1=", " 2"), Example("1=", "1"))
    batch = training_batch(encoded, pad_id=7)
    ends = [len(example.token_ids) for example in encoded]
    for row, end in enumerate(ends):
        assert batch["labels"][row, end - 1] == 1 and batch["input_ids"][row, end - 1] == 1
        assert batch["attention_mask"][row].tolist() == [1] * (end - 1) + [0] * (max(ends) - end + 1)
        assert not batch["continuation_mask"][row, end - 1 :].any()


def test_a_start_token_is_added_once_when_the_tokenizer_adds_it(tokenizer_of):
    tokenizer = tokenizer_of(bos=True)
    (encoded,) = encode(tokenizer, Example("a", "b"))
    assert encoded.token_ids == (*tokenizer("a").input_ids, *tokenizer("b", add_special_tokens=False).input_ids, 1)
    assert encoded.token_ids.count(0) == 1 and encoded.prompt_length == 2


def test_short_rows_are_padded_on_the_right_and_masked(tokenizer):
    batch = training_batch(encode(tokenizer, Example("a", "b"), Example("aaaa", "bb")), pad_id=7)
    assert batch["input_ids"].shape == (2, 7)
    assert batch["attention_mask"].sum(1).tolist() == [2, 6]
    assert (batch["input_ids"][0, 3:] == 7).all() and (batch["labels"][0, 3:] == -100).all()


def test_a_long_sequence_keeps_its_completion_and_is_said_aloud(tokenizer_of, lines):
    tokenizer = tokenizer_of(bos=True)
    encoded = encode(tokenizer, Example("abcdefgh", "XY"), Example("a", "b"), max_length=6, reporter=lines)
    assert tokenizer.decode(encoded[0].token_ids) == "<s>ghXY</s>"
    assert [example.truncated for example in encoded] == [True, False]
    assert len(lines.lines) == 1 and "1 of 2" in lines.lines[0] and "train.max_length" in lines.lines[0]


def test_a_completion_longer_than_everything_loses_its_end(tokenizer):
    (encoded,) = encode(tokenizer, Example("a", "0123456789"), max_length=4)
    assert tokenizer.decode(encoded.token_ids) == "0123" and encoded.loss_tokens == 3


def test_calibration_batches_mark_the_completion(tokenizer):
    examples = encode(tokenizer, Example("aaaa", "bb"), Example("a", "b"), Example("aa", "b"))
    batches = calibration_batches(examples, pad_id=0, batch_size=2)
    assert [len(batch["input_ids"]) for batch in batches] == [2, 1]
    for batch in batches:
        assert batch["continuation_mask"].dtype == torch.bool
        assert not (batch["continuation_mask"] & (batch["attention_mask"] == 0)).any()
    assert sum(int(batch["continuation_mask"].sum()) for batch in batches) == 2 + 1 + 1


def test_without_a_pad_token_the_end_token_pads(tokenizer_of):
    assert padding_id(tokenizer_of()) == 1
    assert padding_id(tokenizer_of(pad=True)) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the tokenizer is the same every time
@given(
    documents=st.lists(st.text("abc ", min_size=1, max_size=30), min_size=1, max_size=6),
    max_length=st.integers(2, 16),
)
def test_documents_are_packed_without_losing_a_token(documents, max_length, tokenizer):
    """Every token after the first is predicted exactly once; all sequences but the last are full."""
    encoded = encode_examples([Example("", text) for text in documents], tokenizer, max_length, SilentReporter())
    stream = [token for text in documents for token in [*tokenizer(text).input_ids, tokenizer.eos_token_id]]
    assert [token for example in encoded for token in example.token_ids[1:]] == stream[1:]
    assert all(len(example.token_ids) == max_length for example in encoded[:-1])
    assert not any(example.truncated for example in encoded)
    assert sum(example.loss_tokens for example in encoded) == len(stream) - 1


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
