"""Chat templates: prompts, worked examples and training text are what the tokenizer itself writes of a conversation."""

import pytest
import torch
from lm_eval import evaluator
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, evaluate
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import SilentReporter
from adaptive_bench.task import Example
from adaptive_bench.training.encoding import encode_examples

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
CHATTY = "{% for m in messages %}[{{ loop.length }} {{ m['role'] }}]{{ m['content'] }}{% endfor %}"
REFUSES = "{{ raise_exception('one question only') if messages|length > 1 else 'ok' }}"
THINKS = TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
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


@pytest.mark.parametrize("thinking", [None, False, True])
@pytest.mark.parametrize(("task", "shots"), [("nano_qa_ll", 1), ("nano_math", 0)])
def test_system_prompt_and_thinking_are_those_of_lm_eval(task, shots, thinking, tokenizer, backbone):
    """Its `system_instruction`, and `enable_thinking` of its model, which refuses it for scores."""
    tokenizer.chat_template = THINKS
    harness = load_task(find_task(task), None, shots)
    harness.set_fewshot_seed(FEWSHOT_SEED)
    theirs = HFLM(pretrained=backbone, tokenizer=tokenizer, device="cpu", chat_template_args={"enable_thinking": False})
    theirs.chat_template_args = {} if thinking is None else {"enable_thinking": thinking}
    harness.build_all_requests(
        limit=3,
        system_instruction="Be brief.",
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        chat_template=theirs.apply_chat_template,
    )
    model = AdaptiveModel.build(backbone, "dense").eval()
    how = {"chat_template": True, "system_prompt": "Be brief.", "enable_thinking": thinking}
    _, samples = evaluate(model, tokenizer, task, documents=range(3), num_fewshot=shots, max_new_tokens=2, **how)
    stock = {request.doc_id: request.args[0] for request in harness.instances}
    assert [sample.prompt for sample in samples] == [stock[number] for number in range(3)]
    for sample in samples:
        assert sample.prompt.startswith("[system]Be brief.") and sample.prompt.endswith("</think>") == (
            thinking is False
        )


def test_without_a_template_a_system_prompt_stands_before_the_question_as_in_lm_eval(tokenizer, backbone):
    harness = load_task(find_task("nano_math"), None, 1)
    harness.set_fewshot_seed(FEWSHOT_SEED)
    harness.build_all_requests(limit=2, system_instruction="Be brief.")
    model = AdaptiveModel.build(backbone, "dense").eval()
    how = {"documents": range(2), "num_fewshot": 1, "system_prompt": "Be brief.", "max_new_tokens": 2}
    _, samples = evaluate(model, tokenizer, "nano_math", **how)
    assert [sample.prompt for sample in samples] == [request.args[0] for request in harness.instances]
    assert samples[0].prompt.startswith("Be brief.")


@pytest.mark.parametrize("batch_size", [1, 3])
def test_own_stop_strings_and_length_are_those_of_transformers(batch_size, tokenizer, backbone):
    """Up to the first stop string of what `generate` writes, which ends with it, and of what lm-eval's model does."""
    model = AdaptiveModel.build(backbone, "dense").eval()
    numbers = range(3)
    _, (first, *_) = evaluate(
        model, tokenizer, "nano_math", documents=numbers, stop_strings=["never"], max_new_tokens=24
    )
    stops = [first.output[5:7], first.output[15:16]]
    evaluation, samples = evaluate(
        model, tokenizer, "nano_math", documents=numbers, stop_strings=stops, max_new_tokens=12, batch_size=batch_size
    )
    for sample in samples:
        asked = tokenizer(sample.prompt, return_tensors="pt")
        own = backbone.generate(
            **asked, do_sample=False, max_new_tokens=12, stop_strings=stops, tokenizer=tokenizer, pad_token_id=0
        )
        text = tokenizer.decode(own[0, asked.input_ids.shape[1] :], skip_special_tokens=True)
        assert sample.output == text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))]
    assert first.output.startswith(samples[0].output) and len(samples[0].output) < len(first.output)
    harness = load_task(find_task("nano_math"), None, 0)
    harness.set_config("generation_kwargs", {"until": stops, "max_gen_toks": 12}, update=True)  # its `gen_kwargs`
    with quiet():
        found = evaluator.evaluate(
            HFLM(pretrained=backbone, tokenizer=tokenizer, device="cpu"),
            {"tasks": {"nano_math": harness}, "groups": {}, "group_map": {}},
            limit=3,
            bootstrap_iters=0,
        )
    stock = {entry["doc_id"]: entry["resps"][0][0] for entry in found["samples"]["nano_math"]}
    assert {sample.doc: sample.output for sample in samples} == stock
    assert evaluation.docs == 3


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
