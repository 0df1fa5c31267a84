"""A method that draws at random draws for each document: not for each text, each answer to score, or each batch."""

import pytest
from lm_eval.api.instance import Instance

from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.scoring import Scored, shared, wholes
from adaptive_bench.model import AdaptiveModel

QUESTION = "Question: How many apples are left?\nAnswer:"
ANSWERS = (" 12", " 7", " Tom eats 3 of 15 apples.\n#### 12")


def _saved(model):
    saved = model.compute_report()["saved"]
    return [saved[axis] for axis in ("tokens", "core", "net")]


@pytest.fixture(scope="module")
def skipping(backbone):
    model = AdaptiveModel.build(backbone, "random_skip", seed=3).eval()
    model.dial = model.method.dial_for(0.3)
    return model


def _instances(kind, documents, *arguments, task="some_task"):
    """Each document asks for all of the arguments."""
    return [
        Instance(kind, {}, one, number, metadata=(task, document, 1))
        for document in documents
        for number, one in enumerate(arguments)
    ]


def test_documents_of_one_text_are_scored_apart(skipping, tokenizer):
    """Equal questions get draws of their own; a document asked twice, in any batch and company, gets the same."""
    pairs = [(QUESTION, answer) for answer in ANSWERS]
    documents = [4, 9, 4, 0, 17]
    lm = AdaptiveLM(skipping, tokenizer, batch_size=16)
    skipping.reset_ledger()
    found = [score for score, _ in lm.loglikelihood(_instances("loglikelihood", documents, *pairs))]
    saved = _saved(skipping)
    by_document = [found[start : start + len(ANSWERS)] for start in range(0, len(found), len(ANSWERS))]
    assert by_document[0] == by_document[2]
    assert len({tuple(scores) for scores in by_document}) == 4
    skipping.reset_ledger()
    alone = []
    for document in documents:
        one = AdaptiveLM(skipping, tokenizer, batch_size=1)
        alone += [one.loglikelihood([each])[0][0] for each in _instances("loglikelihood", [document], *pairs)]
    assert found == pytest.approx(alone, abs=1e-4)
    assert saved == pytest.approx(_saved(skipping), abs=1e-9)
    other = AdaptiveLM(skipping, tokenizer, batch_size=16)
    renamed = other.loglikelihood(_instances("loglikelihood", documents, *pairs, task="another_task"))
    assert [score for score, _ in renamed] != pytest.approx(found, abs=1e-2)


def test_texts_of_documents_are_rolled_apart(skipping, tokenizer):
    requests = _instances("loglikelihood_rolling", [1, 2, 1], ("Tom has 15 apples. " * 30,))
    first, second, again = AdaptiveLM(skipping, tokenizer, batch_size=4).loglikelihood_rolling(requests)
    assert first == again
    assert first != pytest.approx(second, abs=1e-2)


@pytest.mark.parametrize("sampled", [False, True])
def test_documents_of_one_prompt_are_written_apart(skipping, tokenizer, sampled):
    settings = {"until": [], "max_gen_toks": 16, "do_sample": sampled} | ({"temperature": 0.7} if sampled else {})
    requests = _instances("generate_until", [5, 6, 7, 5, 8], (QUESTION, settings))
    texts = AdaptiveLM(skipping, tokenizer, batch_size=2).generate_until(requests)
    assert len(set(texts)) >= 4
    if not sampled:
        assert texts[0] == texts[3]
        assert texts == [AdaptiveLM(skipping, tokenizer, batch_size=1).generate_until([one])[0] for one in requests]


def test_methods_that_draw_nothing_share_across_documents(backbone, tokenizer, skipping):
    """Two documents with one question: the dense model reads it once, one that draws reads it for each of them."""
    requests = _instances("loglikelihood", [1, 2], *((QUESTION, answer) for answer in ANSWERS))
    fed = {}
    for model in (AdaptiveModel.build(backbone, "dense").eval(), skipping):
        lm = AdaptiveLM(model, tokenizer, batch_size=8)
        lm.loglikelihood(requests)
        fed[model.spec.name] = lm.prompt_tokens
    assert fed["random_skip"] == 2 * fed["dense"]


def test_what_documents_share_is_shared_within_each():
    """Every document reads its context once for its choices; equal sequences of two documents are two passes."""
    context, choices = (5, 6, 7, 8), ((9, 10), (9, 11), (12,))
    requests = [
        Scored(3 * number + place, context, choice, key)
        for number, key in enumerate((70, -3))
        for place, choice in enumerate(choices)
    ]
    contexts, others = shared(requests, 64)
    assert others == []
    assert [(one.document, one.requests) for one in contexts] == [
        (70, tuple(requests[:3])),
        (-3, tuple(requests[3:])),
    ]
    assert [len(one.tails) for one in contexts] == [2, 2]
    passes = wholes(requests, 64)
    assert sorted((one.document, len(one.requests)) for one in passes) == [(-3, 1), (-3, 2), (70, 1), (70, 2)]
    assert wholes(requests[::-1], 64)[0].token_ids == passes[0].token_ids
    assert [one.document for one in wholes(requests[::-1], 64)] == [one.document for one in passes]
