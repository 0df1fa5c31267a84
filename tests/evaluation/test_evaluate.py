"""Evaluating a model on a task of a plugin: scores, savings, samples, and what happens when something is wrong."""

from __future__ import annotations

import json

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lm_eval_model import OutOfMemory
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.task import Task

DOCS = """
import datasets

def load(data_dir=None, **_):
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(12)]
    seen = [{"data_dir": str(data_dir), **row} for row in rows]
    return {"train": datasets.Dataset.from_list(seen), "test": datasets.Dataset.from_list(seen)}
"""
WRITING = """
task: toy
custom_dataset: !function docs.load
output_type: generate_until
test_split: test
fewshot_split: train
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "#### ([0-9]+)"}, {function: take_first}]
  - name: loose
    filter: [{function: regex, regex_pattern: "([0-9]+)"}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOOSING = """
task: toy_choice
custom_dataset: !function docs.load
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: ["1", "2", "3"]
doc_to_target: "0"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(autouse=True)
def _toys(tmp_path, monkeypatch):
    (tmp_path / "docs.py").write_text(DOCS)
    metrics = {"toy": ("exact_match,strict", "exact_match,loose"), "toy_choice": ("acc,none",), "toy_missing": ("acc",)}
    for name, text in {"toy": WRITING, "toy_choice": CHOOSING}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    for name, keys in metrics.items():
        kind = "loglikelihood" if name == "toy_choice" else "generative"
        task = Task(name, "a toy", kind, tmp_path, keys, 0.0, None)
        monkeypatch.setitem(registry._registered, ("tasks", name), (task, "this test"))


@pytest.fixture
def model(backbone):
    return AdaptiveModel.build(backbone, "random_skip", seed=3)


def test_scores_savings_and_samples_of_a_task_with_text(model, tokenizer):
    model.dial = model.method.dial_for(0.25)
    model.train()
    evaluation, samples = evaluate(model, tokenizer, "toy", limit=5, batch_size=2)
    assert model.training
    assert (evaluation.task, evaluation.dial, evaluation.docs) == ("toy", model.dial, 5)
    assert set(evaluation.scores) == {"exact_match,strict", "exact_match,loose"}
    assert 0.1 < evaluation.savings["tokens"] < 0.4
    assert evaluation.savings == evaluation.report["saved"]
    assert evaluation.time_s > 0
    assert 5 <= evaluation.generated_tokens <= 20
    numbers = [sample.doc for sample in samples]
    assert numbers == sorted({*numbers}) and len(numbers) == 5
    assert [sample.target for sample in samples] == [str(number + 1) for number in numbers]
    assert set(samples[0].answers) == {"strict", "loose"}
    correct = [sample.correct for sample in samples]
    assert sum(score for score in correct if score is not None) / 5 == evaluation.scores["exact_match,strict"]
    assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json()))) == evaluation
    assert [Sample.from_json(json.loads(json.dumps(sample.to_json()))) for sample in samples] == samples


def test_choices_are_recorded_by_their_index(model, tokenizer):
    evaluation, samples = evaluate(model, tokenizer, "toy_choice", batch_size=8)
    assert evaluation.docs == len(samples) == 12
    assert evaluation.savings["tokens"] == 0
    assert all(sample.output in (0, 1, 2) and sample.correct == (sample.output == 0) for sample in samples)
    assert evaluation.scores["acc,none"] == sum(sample.output == 0 for sample in samples) / 12


def test_the_same_evaluation_twice_gives_the_same_result_and_does_not_add_up(model, tokenizer):
    model.dial = model.method.dial_for(0.25)
    (first, samples), (second, again) = (evaluate(model, tokenizer, "toy", limit=3, batch_size=8) for _ in range(2))
    assert samples == again
    assert first.report == second.report


@pytest.mark.parametrize("shots", [0, 2])
def test_a_prefix_stands_before_every_prompt_of_this_evaluation_alone(model, tokenizer, shots):
    def asked(prefix):
        _, samples = evaluate(model, tokenizer, "toy", limit=2, num_fewshot=shots, prefix=prefix)
        return [str(sample.prompt) for sample in samples]

    plain = asked("")
    assert asked("\n ") == [f"\n {prompt}" for prompt in plain]
    assert asked("\n") == [f"\n{prompt}" for prompt in plain]
    assert asked("") == plain


def test_the_data_folder_reaches_the_task(tmp_path):
    loaded = load_task(registry.get("tasks", "toy"), tmp_path / "data", None)
    assert loaded.dataset["test"][0]["data_dir"] == str(tmp_path / "data")


def test_memory_that_runs_out_halves_the_batch_aloud_and_counts_nothing_twice(model, tokenizer, monkeypatch, lines):
    undisturbed, _ = evaluate(model, tokenizer, "toy", batch_size=3)
    forward = model.forward

    def limited(input_ids, *given, **named):
        output = forward(input_ids, *given, **named)
        if input_ids.shape[0] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return output

    monkeypatch.setattr(model, "forward", limited)
    evaluation, _ = evaluate(model, tokenizer, "toy", batch_size=12, progress=lines)
    assert evaluation.batch_size == 3
    assert evaluation.scores == undisturbed.scores
    assert evaluation.report == undisturbed.report
    assert [line.split("; now ")[1] for line in lines.lines] == [
        "6 sequence(s) at a time",
        "3 sequence(s) at a time",
    ]


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("DefaultCPUAllocator: can't allocate memory: you tried", OutOfMemory, r"1 sequence\(s\) at a time on cpu"),
        ("shapes do not fit", RuntimeError, "shapes do not fit"),
    ],
)
def test_lack_of_memory_for_one_sequence_is_told_from_other_errors(model, tokenizer, monkeypatch, said, kind, told):
    def never(*_, **__):
        raise RuntimeError(said)

    monkeypatch.setattr(model, "forward", never)
    with pytest.raises(kind, match=told):
        evaluate(model, tokenizer, "toy", batch_size=2)


def test_a_registered_task_without_a_file_is_told(model, tokenizer):
    with pytest.raises(PluginFault, match="`task: toy_missing`"):
        evaluate(model, tokenizer, "toy_missing")


def test_a_prompt_longer_than_the_context_is_told_before_the_model_runs(model, tokenizer, monkeypatch):
    monkeypatch.setattr(model, "forward", None)
    with pytest.raises(UsageError, match="document 0 of toy has"):
        evaluate(model, tokenizer, "toy", num_fewshot=11)


def test_nothing_is_printed(model, tokenizer, capfd):
    evaluate(model, tokenizer, "toy", limit=2)
    assert capfd.readouterr() == ("", "")


def test_a_record_tells_what_was_asked(backbone, tokenizer):
    model = AdaptiveModel.build(backbone, "dense")
    first, again, fewer, shown = (
        evaluate(model, tokenizer, "toy", limit=limit, num_fewshot=shots, batch_size=4)[0].data
        for limit, shots in ((4, 0), (4, 0), (3, 0), (4, 1))
    )
    assert first == again
    assert first["documents_sha256"] == shown["documents_sha256"] != fewer["documents_sha256"]
    assert first["prompts_sha256"] != shown["prompts_sha256"]
    assert first["revision"] is None  # made by code, not read from the hub


def test_a_record_tells_how_text_was_to_be_written(model, tokenizer, tmp_path):
    told = []
    for longest in (4, 5, 4):
        (tmp_path / "toy.yaml").write_text(WRITING.replace("max_gen_toks: 4", f"max_gen_toks: {longest}"))
        told.append(evaluate(model, tokenizer, "toy", limit=2)[0].data or {})
    first, longer, again = told
    assert first["settings_sha256"] == again["settings_sha256"] != longer["settings_sha256"]
    assert first["prompts_sha256"] == longer["prompts_sha256"]
    assert "settings_sha256" not in (evaluate(model, tokenizer, "toy_choice", limit=2)[0].data or {})
