"""What a document adds to a metric: the values of all make up the metric, and their spread is the metric's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.store.evaluation import Sample
from adaptive_bench.store.measured import Documents
from adaptive_bench.tables.document_scores import document_values, is_pooled, linearised
from adaptive_bench.tables.intervals import UNBOUNDED, interval

BITS = "bits_per_byte,none"


def _sample(doc, text, lost):
    return Sample(doc, text, -lost if isinstance(lost, float) else lost, {}, {}, None)


def _values(metric, samples):
    return document_values(metric, Documents.of(samples))


def test_bits_per_byte_of_two_documents():
    # 8 bits of 4 bytes ("ä" has two) and 2 bits of 1 byte: 10 / 5 in all.
    found = _values(BITS, [_sample(3, "äbc", 8 * math.log(2)), _sample(5, "d", 2 * math.log(2))])
    assert found == pytest.approx({3: 2.0, 5: 2.0})
    # 8 and 7 of 4 and 1: R = 3, values 3 + (8 - 12) / 2.5 and 3 + (7 - 3) / 2.5.
    found = _values(BITS, [_sample(0, "abcd", 8 * math.log(2)), _sample(1, "e", 7 * math.log(2))])
    assert found == pytest.approx({0: 1.4, 1: 4.6})


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 1000)), min_size=1, max_size=20))
def test_the_mean_of_the_values_is_the_metric(parts):
    lost, sizes = np.array(parts).T
    assert linearised(lost, sizes).mean() == pytest.approx(lost.sum() / sizes.sum(), rel=1e-9, abs=1e-9)


def test_what_lm_eval_gives_for_a_text_is_made_up_of_its_documents(model_folder, tmp_path):
    model, tokenizer = (one.from_pretrained(model_folder) for one in (AutoModelForCausalLM, AutoTokenizer))
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in ("Über uns", "a b\\tc ", "d")))
    done, samples = evaluate(AdaptiveModel.build(model, "dense"), tokenizer, f"perplexity:{tmp_path / 'texts.jsonl'}")
    assert len(done.scores) == 3 and all(map(is_pooled, done.scores))
    values = {metric: _values(metric, samples) for metric in done.scores}
    assert [metric for metric, found in values.items() if found] == [BITS] and set(values[BITS]) == {0, 1, 2}
    assert np.mean(list(values[BITS].values())) == pytest.approx(done.scores[BITS], rel=1e-9)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [_sample(0, "", 1.0)],  # no size
        [_sample(0, 3, 1.0)],
        [_sample(0, "a", 1.0), _sample(1, "b", "written")],
        [_sample(0, "a", math.inf)],
    ],
)
def test_samples_that_do_not_tell_give_nothing(samples):
    assert _values(BITS, samples) == {}
    assert _values("perplexity,none", samples) == {}


def test_other_metrics_are_the_scores_of_documents():
    samples = [Sample(0, "", "", {}, {"acc,none": 1.0}, 1.0), Sample(1, "", "", {}, {}, None)]
    assert _values("acc,none", samples) == {0: 1.0}
    assert not is_pooled("acc,none")


@pytest.mark.parametrize(("seeds", "documents"), [(1, 100), (5, 100), (3, 400)])
def test_intervals_of_pooled_metrics_cover_the_truth(seeds, documents):
    random = np.random.default_rng(seeds * documents)
    spread, held, tables = 0.6, 0, 600
    for _ in range(tables):
        logs = random.normal(0, spread, documents)
        # Longer documents are harder, so that the mean of their own rates is not the pooled one: that is 2 + 0.36.
        rates = 2 + logs + random.normal(0, 0.5, documents) + random.normal(0, 0.05, (seeds, 1)) * (seeds > 1)
        found = interval(linearised(rates * np.exp(logs), np.broadcast_to(np.exp(logs), rates.shape)), UNBOUNDED)
        held += found.low <= 2 + spread**2 <= found.high
    assert 0.92 <= held / tables <= 0.98
