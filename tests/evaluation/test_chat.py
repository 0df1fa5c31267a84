"""Chat templates: prompts, worked examples and training text are what the tokenizer itself writes of a conversation."""

import pytest
import torch
from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import SilentReporter
from adaptive_bench.task import Example
from adaptive_bench.training import encode_examples

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
CHATTY = "{% for m in messages %}[{{ loop.length }} {{ m['role'] }}]{{ m['content'] }}{% endfor %}"
REFUSES = "{{ raise_exception('one question only') if messages|length > 1 else 'ok' }}"
LONG_ENDING = TEMPLATE.replace("</s>", "<end>\n")


@pytest.fixture
def tokenizer(model_folder):
    found = AutoTokenizer.from_pretrained(model_folder)
    found.chat_template = TEMPLATE
    return found


@pytest.fixture
def backbone(model_folder):
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


def encoded(tokenizer, *examples):
    return encode_examples(examples, tokenizer, 400, SilentReporter(), chat_template=True)


@pytest.mark.parametrize("template", [TEMPLATE, LONG_ENDING])
def test_a_training_example_is_the_tokenizers_own_rendering(tokenizer, template):
    tokenizer.chat_template = template
    messages = [{"role": "user", "content": "Question: 1+1?\nAnswer:"}, {"role": "assistant", "content": "It is 2."}]
    (found,) = encoded(tokenizer, Example(messages[0]["content"], " It is 2."))
    whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    prompt = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=True, return_dict=False)
    assert list(found.token_ids[: found.prompt_length]) == prompt
    if template == TEMPLATE:
        assert list(found.token_ids) == whole
    else:  # the template closes the answer in its own way; the end token comes after it
        assert tokenizer.decode(found.token_ids) == tokenizer.decode(whole).rstrip() + "</s>"


def test_documents_of_a_corpus_are_no_conversation(tokenizer):
    (found,) = encoded(tokenizer, Example("", "Once upon a time."))
    assert tokenizer.decode(found.token_ids) == "Once upon a time.</s>"


@pytest.mark.parametrize(("task", "shots"), [("nano_qa_ll", 0), ("nano_qa_ll", 2), ("nano_math", 1)])
def test_prompts_and_scores_are_those_of_lm_eval(task, shots, tokenizer, backbone):
    kind = find_task(task).kind
    harness = load_task(find_task(task), None, shots)
    harness.set_fewshot_seed(FEWSHOT_SEED)
    if kind == "generative":
        harness.config.generation_kwargs["max_gen_toks"] = 4
    theirs = HFLM(pretrained=backbone, tokenizer=tokenizer, batch_size=4, device="cpu")
    with quiet():
        about = {"tasks": {task: harness}, "groups": {}, "group_map": {}}
        found = evaluator.evaluate(
            theirs, about, limit=4, bootstrap_iters=0, apply_chat_template=True, fewshot_as_multiturn=True
        )
    model = AdaptiveModel.build(backbone, "dense").eval()
    evaluation, samples = evaluate(model, tokenizer, task, limit=4, num_fewshot=shots, chat_template=True)
    stock = {entry["doc_id"]: entry for entry in found["samples"][task]}
    for sample in samples:
        assert sample.prompt == stock[sample.doc]["arguments"][0][0]
        assert sample.prompt.count("[user]") == shots + 1 and sample.prompt.endswith("[assistant]")
        if kind != "generative":
            scores = [response[0][0] for response in stock[sample.doc]["resps"]]
            assert sample.output == scores.index(max(scores))
    assert evaluation.data["chat_template_sha256"]


def test_a_tokenizer_without_a_template_is_refused(tokenizer, backbone):
    tokenizer.chat_template = None
    with pytest.raises(UsageError, match="has none"):
        encoded(tokenizer, Example("a", "b"))


def test_a_template_that_cannot_be_cut_or_refuses_is_told(tokenizer):
    tokenizer.chat_template = CHATTY
    with pytest.raises(EnvironmentProblem, match="alike with and without"):
        encoded(tokenizer, Example("a", "b"))
    tokenizer.chat_template = REFUSES
    with pytest.raises(EnvironmentProblem, match="one question only"):
        encoded(tokenizer, Example("a", "b"))
