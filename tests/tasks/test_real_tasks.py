"""Tasks on the data sets of papers: templates, splits, scores, and data that is not there or wrong."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from lm_eval import evaluator
from lm_eval.api.model import LM

from adaptive_bench import registry
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import expand_tasks, find_task
from adaptive_bench.task import ExampleRequest, Task
from adaptive_bench.tasks.csqa.task import CSQA, CSQA_LL, CSQA_NEMOTRON
from adaptive_bench.tasks.gsm8k.task import GSM8K, GSM8K_NEMOTRON
from adaptive_bench.tasks.gsm8k_long.task import GSM8K_LONG

SHARED = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "data"
real_files = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data files are not beside the repository")
TASKS = pytest.mark.parametrize("task", [GSM8K, CSQA, CSQA_LL], ids=lambda task: task.name)

GSM8K_ROW = {"question": "Half of 1,000 eggs?", "answer": "It is 1000/2 = <<1000/2=500>>500 eggs.\n#### 500"}
OPTIONS = {"label": list("ABCDE"), "text": ["ice", "fire", "sand", "wood", "rain"]}
CSQA_ROW = {"id": "1", "question": "What is hot? ", "question_concept": "hot", "choices": OPTIONS, "answerKey": "B"}
COS_E_ROW = {"id": "1", "abstractive_explanation": "fire  burns\n"}


class _Parrot(LM):
    """Gives fixed answers."""

    def __init__(self, texts):
        super().__init__()
        self.texts = texts
        self.asked: list[Any] = []

    def generate_until(self, requests):
        self.asked = [request.args for request in requests]
        return self.texts

    def loglikelihood(self, requests):
        self.asked = [request.args for request in requests]
        return [(0.0 if request.args[1] == " B" else -1.0, False) for request in requests]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


def _write(folder, split, rows, compressed=False):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if compressed:
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / f"{split}.jsonl").write_text(text)


@pytest.fixture
def data_dir(tmp_path):
    """Ten rows of each data set."""
    for split in ("train", "test"):
        rows = [GSM8K_ROW | {"question": f"{GSM8K_ROW['question']} {split} {n}"} for n in range(10)]
        _write(tmp_path / "gsm8k", split, rows, compressed=split == "train")
    for split in ("train", "validation"):
        ids = [{"id": f"{split}-{n}"} for n in range(10)]
        _write(tmp_path / "commonsense_qa", split, [CSQA_ROW | one for one in ids])
        _write(tmp_path / "cos_e", split, [COS_E_ROW | one for one in ids])
    return tmp_path


def _request(data_dir, split="train", count=10_000, seed=1):
    return ExampleRequest(split, count, seed, data_dir)


def _scores(task, data_dir, texts):
    parrot = _Parrot(texts)
    with quiet():
        found = evaluator.evaluate(
            parrot,
            {"tasks": {task.name: load_task(task, data_dir, None)}, "groups": {}, "group_map": {}},
            limit=len(texts),
            bootstrap_iters=0,
        )
    return {metric: found["results"][task.name][metric] for metric in task.metrics}, parrot.asked


def test_gsm8k_trains_in_the_papers_template_without_calculator_marks(data_dir):
    example = GSM8K.training(_request(data_dir))[0]
    assert example.prompt.startswith("Question: Half of 1,000 eggs? train ")
    assert example.prompt.endswith("\nAnswer:")
    assert example.completion == " It is 1000/2 = 500 eggs.\n#### 500"


def test_a_long_chain_solves_four_problems_in_turn_and_its_answer_is_their_sum(tmp_path):
    for split, count in (("train", 41), ("test", 10)):
        answers = [f"It is <<{n}=1>>{n},000.50.\n#### {n},000.50" for n in range(1, count + 1)]
        rows = [{"question": f"{split} {n}?", "answer": answer} for n, answer in enumerate(answers)]
        _write(tmp_path / "gsm8k", split, rows)
    by_question = {one.prompt.splitlines()[1]: one for one in GSM8K_LONG.training(_request(tmp_path))}
    example = by_question["1. train 4?"]
    assert example.prompt.startswith("Question: Solve these 4 problems") and "4. train 7?" in example.prompt
    *_, before, last, answer = example.completion.splitlines()
    assert (before, answer) == ("Result 4: 8000.5", "#### 26002")
    assert last == "The sum is 5000.5 + 6000.5 + 7000.5 + 8000.5 = 26002."
    assert "<<" not in example.completion
    scores, asked = _scores(GSM8K_LONG, tmp_path, [" 1. It is 1000.5.\n#### 10002", " The sum is 26002"])
    assert tuple(scores.values()) == (0.5, 1.0, 0.5, 0.0), "ten rows are two questions"
    assert "test 3?" in asked[0][0] and "test 8?" not in asked[1][0]
    assert asked[0][1]["max_gen_toks"] == 2048


def test_csqa_lists_the_options_in_the_question_and_joins_the_explanation_by_id(data_dir):
    question = "Question: What is hot?\nA. ice\nB. fire\nC. sand\nD. wood\nE. rain\nAnswer:"
    (example, *_) = CSQA.training(_request(data_dir))
    assert (example.prompt, example.completion) == (question, " fire burns\n#### B")
    (direct, *_) = CSQA_LL.training(_request(data_dir))
    assert (direct.prompt, direct.completion) == (question + "\n####", " B")


@pytest.mark.parametrize(
    ("task", "text", "strict", "flexible", "unread"),
    [
        (GSM8K, " The answer is $500.", 0, 1, (1, 0)),
        (GSM8K, " five hundred", 0, 0, (1, 1)),
        (CSQA, " fire burns\n#### B", 1, 1, (0, 0)),
        (CSQA, " A? No: B\n#### A", 0, 0, (0, 0)),
    ],
)
def test_answers_are_scored_strictly_and_flexibly_beside_the_share_that_cannot_be_read(
    task, text, strict, flexible, unread, data_dir
):
    scores, ((prompt, settings),) = _scores(task, data_dir, [text])
    assert tuple(scores.values()) == (strict, flexible, *unread)
    assert prompt.startswith("Question: ") and prompt.endswith("\nAnswer:")
    assert settings["until"] == ["Question:"] and not settings["do_sample"]


@TASKS
def test_worked_examples_show_what_training_shows(task, data_dir):
    loaded = load_task(task, data_dir, 1)
    loaded.set_fewshot_seed(0)
    document = loaded.eval_docs[0]
    shown = loaded.fewshot_context(document, 1).removesuffix(loaded.fewshot_context(document, 0))
    examples = [*task.training(_request(data_dir)), *task.training(_request(data_dir, "calibration"))]
    assert shown in {f"{example.prompt}{example.completion}\n\n" for example in examples}


def test_missing_fields_and_missing_explanations_are_told(data_dir):
    _write(data_dir / "cos_e", "train", [COS_E_ROW | {"id": "another"}])
    with pytest.raises(EnvironmentProblem, match=r"explanation of the same id in .*cos_e.*, but 10 have none"):
        CSQA.training(_request(data_dir))
    _write(data_dir / "cos_e", "train", [{"id": "1"}])
    with pytest.raises(EnvironmentProblem, match=r"cos_e/train.jsonl .* line 1: it lacks abstractive_explanation"):
        CSQA.training(_request(data_dir))


@pytest.mark.parametrize(
    "wrong",
    [
        {"choices": {"text": ["ice"]}},
        {"choices": OPTIONS | {"text": OPTIONS["text"][:-1]}},
        {"question": 7},
    ],
)
def test_a_row_of_another_form_is_told_with_its_number(wrong, data_dir):
    _write(data_dir / "commonsense_qa", "validation", [CSQA_ROW, CSQA_ROW | wrong])
    for task in (CSQA, CSQA_LL):
        with pytest.raises(EnvironmentProblem, match=r"commonsense_qa.*row 2 of 'validation' does not .*Error"):
            load_task(task, data_dir, None)


@real_files
@pytest.mark.parametrize(("task", "rows"), [(GSM8K, 7473), (CSQA, 9741), (CSQA_LL, 9741)], ids=lambda one: str(one)[:9])
def test_training_calibration_and_validation_share_the_real_training_split(task, rows):
    train = task.training(_request(SHARED))
    calibration = task.training(_request(SHARED, "calibration"))
    validation = load_task(task, SHARED, None).dataset["validation"]
    assert len(train) + len(calibration) + len(validation) == rows
    assert 0.06 < len(calibration) / rows < 0.08
    assert 0.02 < len(validation) / rows < 0.04
    few = task.training(_request(SHARED, count=5))
    assert few == train[:5]
    assert few != task.training(_request(SHARED, count=5, seed=2))
    assert all("<<" not in example.completion and "####" in example.prompt + example.completion for example in train)


@real_files
@pytest.mark.parametrize(("task", "documents"), [(GSM8K, 1319), (CSQA, 1221)], ids=lambda one: str(one)[:9])
def test_the_real_test_questions_are_in_no_training_text(task, documents):
    loaded = load_task(task, SHARED, None)
    tested = {loaded.doc_to_text(document) for document in loaded.eval_docs}
    assert len(loaded.eval_docs) == documents
    chosen_on = {loaded.doc_to_text(document) for document in loaded.dataset["validation"]}
    assert chosen_on and not tested & chosen_on
    trained, calibrated = (
        {example.prompt for example in task.training(_request(SHARED, split))} for split in ("train", "calibration")
    )
    assert not (tested | chosen_on) & (trained | calibrated) and not trained & calibrated


# The paper's other tasks on the real files: MMLU, PIQA, translation, and what lm-eval ships.


@pytest.mark.parametrize(
    ("task", "folder", "split", "row", "said"),
    [
        ("csqa_ll", "commonsense_qa", "validation", {**CSQA_ROW, "answerKey": "Z"}, "letters, got 'Z'"),
        ("piqa_gen", "piqa", "validation", {"goal": "g", "sol1": "a", "sol2": "b", "label": -1}, "from 0 on, got -1"),
        ("mmlu_gen", "mmlu", "test", {"question": "q", "subject": "s", "choices": list("abcd"), "answer": 4}, "got 4"),
        ("gsm8k", "gsm8k", "test", {"question": "2?", "answer": "It is 4."}, "a number behind ####"),
        ("gsm8k", "gsm8k", "test", {"question": "2?", "answer": None}, "answer"),
    ],
)
def test_an_answer_that_is_none_of_the_options_is_refused(tmp_path, task, folder, split, row, said):
    for name in ("train", "validation", "test"):
        _write(tmp_path / folder, name, [row])
    with pytest.raises(AdaptiveBenchError, match=re.escape(said)):
        load_task(find_task(task), tmp_path, 0)


@real_files
@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("mmlu_stem", 3153),
        ("mmlu_gen", 14042),
        ("piqa", 1838),
        ("piqa_gen", 1838),
        ("openbookqa", 500),
        ("winogrande", 1267),
        ("lambada", 5153),
        ("wmt16_en_ro", 1999),
        ("mmlu_virology", 166),
        ("perplexity:novels", 563),
    ],
)
def test_every_task_finds_its_local_files(name, documents):
    assert len(load_task(find_task(name), SHARED, 0).eval_docs) == documents


@real_files
@pytest.mark.parametrize("subject", ["abstract_algebra", "high_school_european_history", "virology"])
@pytest.mark.parametrize("shots", [0, 5])
def test_mmlu_asks_what_lm_evals_subjects_ask(subject, shots):
    ours, stock = load_task(find_task("mmlu"), SHARED, shots), load_task(find_task(f"mmlu_{subject}"), SHARED, shots)
    mine = [document for document in ours.eval_docs if document["subject"] == subject]
    assert len(mine) == len(stock.eval_docs)
    for one, other in list(zip(mine, stock.eval_docs, strict=True))[:5]:
        assert ours.fewshot_context(one, shots) == stock.fewshot_context(other, shots)
        assert ours.doc_to_target(one) == stock.doc_to_target(other)


@real_files
def test_translation_is_scored_by_sacrebleu_with_its_signature():
    signatures = load_task(find_task("wmt16_en_ro"), SHARED, None).config.metadata["signatures"]
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "chrf" in signatures


@pytest.mark.parametrize("name", sorted(set(registry.names("tasks"))))
def test_every_task_tells_where_its_documents_are_from(name):
    thing = registry.get("tasks", name)
    if isinstance(thing, Task) and not name.startswith("nano"):
        assert thing.source and thing.licence
        assert bool(thing.text_source) == (thing.training is not None)
    for member in expand_tasks([name]):
        assert member == "perplexity" or find_task(member).metrics


def test_the_papers_traces_lose_their_tags_and_keep_the_data_sets_answer(tmp_path):
    _write(tmp_path / "gsm8k", "train", [{"question": "1?", "answer": "#### 1"}])
    assert GSM8K_NEMOTRON.training is not None
    with pytest.raises(EnvironmentProblem, match="multi-domain-reasoning/gsm8k, but there is none"):
        GSM8K_NEMOTRON.training(ExampleRequest("train", 1, 1, tmp_path))  # never replaced in silence
    traces = tmp_path / "multi-domain-reasoning"
    trace = "<reasoning>\nThink {}.\n</reasoning>"
    rows = [
        {"question": f"{n}?", "answer": "By hand.\n#### 1,500", "reasoning_nemotron_70B": trace.format(n)}
        for n in range(20)
    ]
    _write(traces / "gsm8k", "train", [*rows, rows[0] | {"question": "empty", "reasoning_nemotron_70B": ""}])
    _write(traces / "commonsense_qa", "train", [CSQA_ROW | row | {"question": row["question"]} for row in rows])
    for task, answer in ((GSM8K_NEMOTRON, "1,500"), (CSQA_NEMOTRON, "B")):
        found = [*task.training(ExampleRequest("train", 99, 1, tmp_path))]
        assert found and all(example.completion.startswith(" Think ") for example in found)
        assert all(example.completion.endswith(f".\n#### {answer}") for example in found)
    assert "Nemotron-70B" in GSM8K_NEMOTRON.text_source


@real_files
@pytest.mark.parametrize(
    ("name", "documents"),
    [("gsm8k", 241), ("piqa", 16113), ("piqa_gen", None), ("openbookqa", 500)],
)
def test_choices_are_made_on_other_documents(name, documents):
    chosen_on = load_task(find_task(name), SHARED, 0, "validation")
    tested = load_task(find_task(name), SHARED, 0)
    asked = [{json.dumps(document) for document in task.eval_docs} for task in (chosen_on, tested)]
    assert documents is None or len(chosen_on.eval_docs) == documents
    assert len(asked[0] & asked[1]) <= 1  # one row of PIQA is in both of its splits


@real_files
def test_choices_need_their_split():
    with pytest.raises(EnvironmentProblem, match=r"'hellaswag' are drawn from the split 'train'.*--num-fewshot 0"):
        load_task(find_task("hellaswag"), SHARED, 5)
    with pytest.raises(EnvironmentProblem, match=r"Validation documents of 'hellaswag' are those of the split 'train'"):
        load_task(find_task("hellaswag"), SHARED, 0, "validation")
    with pytest.raises(UsageError, match="'lambada' has none besides those it is tested on"):
        load_task(find_task("lambada"), SHARED, 0, "validation")
