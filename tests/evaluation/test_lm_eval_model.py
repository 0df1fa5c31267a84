"""The lm-eval adapter agrees with lm-eval's own Hugging Face adapter, whatever the batch size."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers.processors import TemplateProcessing

from adaptive_bench.errors import NotFinite, UsageError
from adaptive_bench.evaluation import scoring
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.hardware import OutOfMemory
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.text_decisions import encoded
from adaptive_bench.progress import SilentReporter
from adaptive_bench.task import Example
from adaptive_bench.training.encoding import encode_examples

PAIRS = [
    ("Question: How many apples are left?\nAnswer:", " 12"),
    ("Question: How many apples are left?\nAnswer:", " 7"),
    ("Question: How many apples are left?\nAnswer:", " Tom eats 3 of 15 apples.\n#### 12"),
    ("Short", " one"),
    ("", "no context at all"),
    ("ends in a space ", "and goes on"),
    ("Tom has 15 apples. " * 30, " He is full."),  # longer than the context
    ("</s>", " Tom"),  # the text of the end token
    ("Tom has 15 apples.</s>", "Tom is full."),
    ("Tom has 15 apples.", " He is full.</s>"),
]
PROMPTS = ["Question: 1 + 1?\nAnswer:", "Tom", "Question: a longer one, with more words than the others have?\nAnswer:"]
ENDED = "Tom has 15 apples.</s>"


def _requests(kind, arguments):
    return [Instance(kind, {}, one, 0, metadata=("some_task", number, 1)) for number, one in enumerate(arguments)]


def _writing(**settings):
    settings = {"until": ["a"], "max_gen_toks": 20, "do_sample": False} | settings
    return _requests("generate_until", [(prompt, settings) for prompt in PROMPTS])


@pytest.fixture(scope="module")
def dense(backbone):
    return AdaptiveModel.build(backbone, "dense").eval()


@pytest.fixture(scope="module")
def skipping(backbone):
    model = AdaptiveModel.build(backbone, "random_skip", seed=3).eval()
    model.dial = model.method.dial_for(0.3)
    return model


@pytest.fixture(scope="module")
def reference(backbone, tokenizer):
    return HFLM(pretrained=backbone, tokenizer=tokenizer, batch_size=3)


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_loglikelihoods_are_those_of_the_plain_model(dense, reference, tokenizer, batch_size):
    lm = AdaptiveLM(dense, tokenizer, batch_size=batch_size)
    found = lm.loglikelihood(_requests("loglikelihood", PAIRS))
    expected = reference.loglikelihood(_requests("loglikelihood", PAIRS), disable_tqdm=True)
    assert [score for score, _ in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_a_continuation_the_model_would_write_is_greedy(dense, tokenizer):
    lm = AdaptiveLM(dense, tokenizer, batch_size=2)
    prompt = lm.tok_encode(PROMPTS[0])
    (written,) = new_tokens(dense, torch.tensor([prompt]), max_new_tokens=5)
    other = [*written[:-1], (written[-1] + 1) % len(tokenizer)]
    found = lm._loglikelihood_tokens([(None, prompt, written), (None, prompt, other)])
    assert [greedy for _, greedy in found] == [True, False]


def test_rolling_loglikelihoods_are_those_of_the_plain_model(dense, reference, tokenizer, monkeypatch):
    texts = _requests("loglikelihood_rolling", [("Tom has 15 apples. " * 30,), ("Short",)])
    found = AdaptiveLM(dense, tokenizer, batch_size=2).loglikelihood_rolling(texts)
    with monkeypatch.context() as patch:
        patch.setattr(reference, "add_bos_token", False)  # else it scores the start token as a part of the text
        assert found == pytest.approx(reference.loglikelihood_rolling(texts, disable_tqdm=True), rel=1e-4)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("until", [["a"], ["zz", " "], []])
def test_greedy_text_is_that_of_the_plain_model(dense, reference, tokenizer, until, batch_size):
    found = AdaptiveLM(dense, tokenizer, batch_size=batch_size).generate_until(_writing(until=until))
    assert found == reference.generate_until(_writing(until=until), disable_tqdm=True)
    assert not any(stop in text for stop in until for text in found)


@pytest.mark.parametrize("asked", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 1}])
def test_scores_are_changed_as_the_generation_config_says(backbone, tokenizer, asked):
    """As with stock lm-eval one text at a time; in its batches padding counts as a word that is there already."""
    plain, model = copy.deepcopy(backbone), AdaptiveModel.build(copy.deepcopy(backbone), "dense").eval()
    before = AdaptiveLM(model, tokenizer, batch_size=3).generate_until(_writing(until=[]))
    for one in (plain, model):
        one.generation_config.update(**asked)
    expected = HFLM(pretrained=plain, tokenizer=tokenizer, batch_size=1).generate_until(
        _writing(until=[]), disable_tqdm=True
    )
    assert AdaptiveLM(model, tokenizer, batch_size=3).generate_until(_writing(until=[])) == expected != before


@pytest.mark.parametrize("named", ["one", "several", "special"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_text_ends_at_every_end_token_of_the_generation_config(backbone, tokenizer, named, batch_size):
    """As with stock lm-eval, whose text keeps an end that is no special token, and at the costs of `generate`."""
    plain, tokenizer = copy.deepcopy(backbone), copy.deepcopy(tokenizer)
    model = AdaptiveModel.build(copy.deepcopy(backbone), "dense").eval()
    prompt = tokenizer(PROMPTS[0], return_tensors="pt").input_ids
    free = plain.generate(prompt, max_new_tokens=20, do_sample=False)[0, prompt.shape[1] :].tolist()
    turn_end = free[8]
    assert free.index(turn_end) >= 3 and turn_end != tokenizer.eos_token_id
    if named == "special":
        tokenizer.add_special_tokens({"additional_special_tokens": [tokenizer.convert_ids_to_tokens(turn_end)]})
    for one in (plain, model):
        one.generation_config.eos_token_id = turn_end if named == "one" else [tokenizer.eos_token_id, turn_end]
    reference = HFLM(pretrained=plain, tokenizer=copy.deepcopy(tokenizer), batch_size=batch_size)
    expected = reference.generate_until(_writing(until=[]), disable_tqdm=True)
    lm = AdaptiveLM(model, tokenizer, batch_size=batch_size)
    assert lm.generate_until(_writing(until=[])) == expected
    assert len(expected[0]) < len(tokenizer.decode(free))

    lm.model.reset_ledger()
    lm.generate_until(_writing(until=[])[:1])
    measured = lm.model.compute_report()["counts"]["decode"]
    lm.model.reset_ledger()
    lm.model.generate(prompt, max_new_tokens=20, do_sample=False)
    assert measured == lm.model.compute_report()["counts"]["decode"]
    assert measured["tokens"] == free.index(turn_end)


def test_only_the_tokenizers_and_the_generation_configs_ends_count(backbone, tokenizer):
    """`generate` and stock lm-eval do not look into config.json where a generation_config.json says otherwise."""
    plain = copy.deepcopy(backbone)
    written = HFLM(pretrained=plain, tokenizer=tokenizer).generate_until(_writing(until=[]), disable_tqdm=True)
    plain.config.eos_token_id = list(range(3, len(tokenizer)))
    assert HFLM(pretrained=plain, tokenizer=tokenizer).generate_until(_writing(until=[]), disable_tqdm=True) == written
    model = AdaptiveModel.build(plain, "dense").eval()
    assert AdaptiveLM(model, tokenizer, batch_size=3).generate_until(_writing(until=[])) == written


def test_the_batch_size_changes_neither_answers_nor_savings(skipping, tokenizer):
    pairs = [(context, " 7") for context, _ in PAIRS if context]
    outcomes = []
    for batch_size in (1, 4):
        skipping.reset_ledger()
        lm = AdaptiveLM(skipping, tokenizer, batch_size=batch_size)
        scores = [score for score, _ in lm.loglikelihood(_requests("loglikelihood", pairs))]
        texts = lm.generate_until(_writing())
        saved = skipping.compute_report()["saved"]
        outcomes.append((scores, texts, [saved[axis] for axis in ("tokens", "core", "net")]))
    (scores, texts, saved), (other_scores, other_texts, other_saved) = outcomes
    assert scores == pytest.approx(other_scores, abs=1e-4)
    assert texts == other_texts
    assert saved == pytest.approx(other_saved, abs=1e-9)
    assert saved[0] > 0.1


@pytest.mark.parametrize("usable", [1, 400_000])
def test_little_memory_makes_batches_smaller_and_changes_nothing(skipping, tokenizer, monkeypatch, usable):
    pairs = [(context, " 7") for context, _ in PAIRS if context]
    forward, read = skipping.forward, list[int]()

    def noted(*args, **given):
        read.append(given["attention_mask"].shape[0] if "attention_mask" in given else 1)
        return forward(*args, **given)

    def outcome():
        lm = AdaptiveLM(skipping, tokenizer, batch_size=8)
        scored = lm.loglikelihood(_requests("loglikelihood", pairs))
        return [score for score, _ in scored], lm.generate_until(_writing())

    scores, texts = outcome()
    monkeypatch.setattr(scoring, "usable_bytes", lambda _: usable)
    monkeypatch.setattr(skipping, "forward", noted)
    few, same = outcome()
    assert few == pytest.approx(scores, abs=1e-4) and same == texts
    assert max(read) == 1 if usable == 1 else 1 < max(read) < 8


def test_batches_that_may_not_be_cut_do_not_fit_as_a_whole(backbone, tokenizer, monkeypatch):
    """`evaluate` then starts again with smaller ones, the same for all documents."""
    monkeypatch.setattr(scoring, "usable_bytes", lambda _: 1)
    model = AdaptiveModel.build(backbone, "mod@paper").eval()
    pairs = [(context, " 7") for context, _ in PAIRS if context]
    with pytest.raises(OutOfMemory, match=r"4 sequences of .* tokens at a time"):
        AdaptiveLM(model, tokenizer, batch_size=4).loglikelihood(_requests("loglikelihood", pairs))
    assert AdaptiveLM(model, tokenizer, batch_size=1).loglikelihood(_requests("loglikelihood", pairs))


def test_exactly_the_tokens_after_the_prompt_are_marked_and_equal_passes_run_once(dense, tokenizer, monkeypatch):
    calls: list[dict[str, Any]] = []
    forward = dense.forward
    monkeypatch.setattr(dense, "forward", lambda **given: (calls.append(given), forward(**given))[1])
    lm = AdaptiveLM(dense, tokenizer, batch_size=8)
    requests: list[Any] = [(None, [5, 6, 7], [8]), (None, [5, 6, 7], [9]), (None, [5], [8, 9, 10])]
    lm._loglikelihood_tokens(requests)
    given = ("input_ids", "attention_mask", "continuation_mask", "logits_to_keep")
    marked = {
        tuple(ids[mask.bool()].tolist()): (ids[marks].tolist(), kept.tolist())
        for call in calls
        for ids, mask, marks, kept in zip(*(call[name] for name in given), strict=True)
    }
    assert marked == {(5, 6, 7): ([], [2]), (5, 8, 9): ([8, 9], [0, 1, 2])}
    assert lm.prompt_tokens == 6


def test_prompts_are_encoded_as_in_training(dense, tokenizer):
    lm = AdaptiveLM(dense, tokenizer, batch_size=1)
    (example,) = encode_examples([Example(PROMPTS[0], " 2")], tokenizer, 96, SilentReporter())
    context, continuation = lm._encode_pair(PROMPTS[0], " 2")
    assert example.token_ids == (*context, *continuation, tokenizer.eos_token_id)
    assert example.prompt_length == len(context)
    assert lm.tok_encode(PROMPTS[0]) == context
    assert lm.tok_encode(tokenizer.bos_token + "Tom") == lm.tok_encode("Tom")


def test_an_end_token_that_a_prompt_ends_in_stays(dense, reference, tokenizer):
    """In evaluation, training and `decisions` alike; one that the tokenizer appends to every text does not."""
    lm = AdaptiveLM(dense, tokenizer, batch_size=1)
    wanted = reference.tok_encode(ENDED)
    appending = copy.deepcopy(tokenizer)
    special = [("<s>", 1), ("</s>", 2)]
    appending.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=special)
    assert appending(ENDED).input_ids == [*wanted, tokenizer.eos_token_id]
    assert wanted[-1] == tokenizer.eos_token_id
    for each in (tokenizer, appending):
        assert AdaptiveLM(dense, each, batch_size=1).tok_encode(ENDED) == wanted
        assert encoded(each, ENDED) == (wanted, [])
        (example,) = encode_examples([Example(ENDED, "Tom")], each, 96, SilentReporter())
        assert example.token_ids[: example.prompt_length] == tuple(wanted)
        assert example.token_ids[example.prompt_length :] == (
            *each("Tom", add_special_tokens=False).input_ids,
            tokenizer.eos_token_id,
        )
    settings = {"until": [], "max_gen_toks": 12, "do_sample": False}
    requests = _requests("generate_until", [(ENDED, settings)])
    assert lm.generate_until(requests) == reference.generate_until(requests, disable_tqdm=True)


def test_a_prompt_without_room_for_an_answer_is_refused_by_name(dense, tokenizer):
    requests = _writing()
    requests[1].arguments = ("Tom " * 200, requests[1].args[1])
    with pytest.raises(UsageError, match=r"96 tokens, but document 1 of some_task has \d{3}.*--num-fewshot"):
        AdaptiveLM(dense, tokenizer, batch_size=4).generate_until(requests)


@pytest.mark.parametrize("sampled", [{}, {"do_sample": True, "temperature": 1.0}])  # in a queue, and in fixed batches
def test_text_ends_where_the_context_ends_and_the_prompt_stays_whole(dense, tokenizer, context, sampled):
    lm = AdaptiveLM(dense, tokenizer, batch_size=4)
    lm.generate_until(_writing(until=[], max_gen_toks=1000, **sampled))
    lengths = [len(lm.tok_encode(prompt)) for prompt in PROMPTS]
    assert lm.generated_tokens <= sum(context - length for length in lengths)
    assert lm.prompt_tokens == sum(lengths)


@pytest.mark.parametrize("continuation", ["", " 7" * 200])
def test_a_continuation_must_have_tokens_and_fit_into_the_context(dense, tokenizer, continuation):
    with pytest.raises(UsageError, match=r"between 1 and 96 tokens .* after the prompt 'Tom'"):
        AdaptiveLM(dense, tokenizer, batch_size=4).loglikelihood(_requests("loglikelihood", [("Tom", continuation)]))


def test_prompts_that_are_cut_are_told_once(dense, tokenizer, lines):
    AdaptiveLM(dense, tokenizer, batch_size=1, reporter=lines).loglikelihood(_requests("loglikelihood", PAIRS))
    (line,) = lines.lines
    assert f"1 of {len(PAIRS)} prompts are longer than the context of 96 tokens" in line


def test_beam_search_is_refused_and_aliases_are_understood(dense, tokenizer):
    lm = AdaptiveLM(dense, tokenizer, batch_size=4)
    with pytest.raises(UsageError, match="num_beams"):
        lm.generate_until(_writing(num_beams=4))
    lm.generate_until(_requests("generate_until", [("Tom", {"until": [], "max_new_tokens": 1, "num_beams": 1})]))
    assert lm.generated_tokens == 1


def test_sampling_is_seeded(dense, tokenizer):
    def write(seed):
        return AdaptiveLM(dense, tokenizer, batch_size=4, seed=seed).generate_until(
            _writing(do_sample=True, temperature=2.0, until=[])
        )

    assert write(1) == write(1) != write(2)


def test_logits_that_are_no_numbers_are_a_failure(dense, tokenizer):
    broken = copy.deepcopy(dense)
    with torch.no_grad():
        broken.backbone_model.model.norm.weight.fill_(float("nan"))
    lm = AdaptiveLM(broken, tokenizer, batch_size=2)
    with pytest.raises(NotFinite, match=r"model\.norm\.weight"):
        lm.loglikelihood(_requests("loglikelihood", PAIRS[:2]))
    with pytest.raises(NotFinite, match=r"model\.norm\.weight"):
        lm.generate_until(_writing())
