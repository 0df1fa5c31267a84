"""GSM8K and CommonsenseQA: the template, the splits, the scores, and data that is not there."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from lm_eval import evaluator
from lm_eval.api.model import LM

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.task import ExampleRequest
from adaptive_bench.tasks.csqa.task import CSQA, CSQA_LL
from adaptive_bench.tasks.gsm8k.task import GSM8K
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
