"""Documents longer than the context are left out on request, and nothing else changes."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.model import AdaptiveModel

DOCUMENTS = range(12)


@pytest.fixture
def tokenizer(model_folder):
    return AutoTokenizer.from_pretrained(model_folder)


@pytest.fixture
def models(model_folder):
    """`models(context)`: the same weights with another context."""
    backbone = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)

    def make(context):
        found = copy.deepcopy(backbone)
        found.config.max_position_embeddings = context
        return AdaptiveModel.build(found, "dense").eval()

    return make


@pytest.mark.parametrize(("task", "shots"), [("nano_math", 0), ("nano_math", 2), ("nano_qa_ll", 2)])
def test_the_others_are_asked_and_scored_as_with_a_longer_context(task, shots, tokenizer, models):
    how = {"documents": DOCUMENTS, "num_fewshot": shots, "max_new_tokens": 1, "batch_size": 4}
    whole, every = evaluate(models(2048), tokenizer, task, **how, skip_overlong=True)
    assert whole.docs == len(DOCUMENTS) and whole.data["overlong"] == []
    lengths = {
        one.doc: max(len(tokenizer(one.prompt + choice).input_ids) for choice in one.choices or ("",)) for one in every
    }
    context = sorted(lengths.values())[len(lengths) // 2]
    evaluation, samples = evaluate(models(context), tokenizer, task, **how, skip_overlong=True)
    # A text needs room for a token; of what is scored the last token is not read.
    fit = [doc for doc, length in lengths.items() if length <= context + (1 if task == "nano_qa_ll" else -1)]
    assert [one.doc for one in samples] == fit and 0 < len(fit) < len(DOCUMENTS)
    assert evaluation.data["overlong"] == sorted(set(DOCUMENTS) - set(fit))
    assert samples == [one for one in every if one.doc in fit]


def test_by_default_they_are_refused_by_a_message_that_names_the_option(tokenizer, models):
    with pytest.raises(UsageError, match="--skip-overlong"):
        evaluate(models(20), tokenizer, "nano_math", documents=DOCUMENTS)
    with pytest.raises(UsageError, match="all 12 are"):
        evaluate(models(5), tokenizer, "nano_math", documents=DOCUMENTS, skip_overlong=True)
