"""A folder of local data with nothing but the documents that a task is tested on."""

import json

import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.runs import preflight, run
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.timing import TimingRequest, time_specs
from adaptive_bench.spec import parse_specs

QUESTION = {
    "id": "1", "question": "Where do fish live?", "question_concept": "fish",
    "choices": {"label": list("ABCDE"), "text": ["sea", "sky", "sand", "fire", "ice"]}, "answerKey": "A",
}  # fmt: skip


@pytest.fixture
def data(tmp_path):
    """`data(folder, **rows by split)`: writes files and gives the folder that holds them."""

    def write(folder, **splits):
        home = tmp_path / "data" / folder
        home.mkdir(parents=True, exist_ok=True)
        for split, rows in splits.items():
            (home / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return home.parent

    return write


@pytest.fixture
def sums(data):
    return data("gsm8k", test=[{"question": f"{n} + 1?", "answer": f"It is {n + 1}. #### {n + 1}"} for n in range(4)])


def test_documents_are_those_of_the_whole_data_set(data, sums):
    before = [dict(one) for one in load_task(find_task("gsm8k"), sums, None).eval_docs]
    data("gsm8k", train=[{"question": "2 * 2?", "answer": "It is 4. #### 4"}] * 9)
    whole = load_task(find_task("gsm8k"), sums, 1)
    assert [dict(one) for one in whole.eval_docs] == before
    assert len(list(whole.fewshot_docs())) == 9


def test_models_as_they_are_need_no_training_split_but_are_not_timed_on_text_that_is_not_there(config_of, data):
    questions = data("commonsense_qa", validation=[QUESTION | {"id": str(number)} for number in range(4)])
    config = config_of(("dense", "random_skip"), tasks=("csqa_ll",), data_dir=questions, train={"steps": 0})
    assert run(config).exit_code == 0
    scores = [[point.scores for point in sweep.finished().values()] for sweep in plan(config).sweeps]
    timing = {"prompt": 4, "new": 4, "out": config.out, "run": config}
    with pytest.raises(UsageError, match="csqa_ll, has any"):
        time_specs(TimingRequest(tuple(parse_specs("dense")), config.model, (1,), **timing))
    data("commonsense_qa", train=[QUESTION | {"id": f"t{number}"} for number in range(40)])
    assert run(config).exit_code == 0
    assert [[point.scores for point in sweep.finished().values()] for sweep in plan(config).sweeps] == scores


@pytest.mark.parametrize(
    ("methods", "changes", "words"),
    [
        ("dense", {"evaluation": {"num_fewshot": 2}}, ("Worked examples", "train.jsonl", "--num-fewshot 0")),
        ("dense", {"train": {"steps": 3}}, ("train.jsonl",)),
        ("dense", {"train_on": ("gsm8k",)}, ("train.jsonl",)),
    ],
)
def test_what_needs_the_training_split_is_named_before_anything_is_computed(config_of, sums, methods, changes, words):
    with pytest.raises(EnvironmentProblem) as problem:
        preflight(config_of(methods, **{"tasks": ("gsm8k",), "data_dir": sums, "train": {"steps": 0}} | changes))
    assert all(word in str(problem.value) for word in words), problem.value


def test_other_text_does_for_calibration_and_what_is_tested_must_be_there(config_of, sums, data):
    how = {"train_on": ("nano_math",), "evaluation": {"calibration": "pooled"}, "train": {"steps": 0}}
    preflight(config_of("gateskip", tasks=("gsm8k",), data_dir=sums, **how), timed=False)
    with pytest.raises(EnvironmentProblem, match=r"Validation documents of 'gsm8k'.*no train\.jsonl"):
        load_task(find_task("gsm8k"), sums, None, "validation")
    home = data("gsm8k", train=[{"question": "2 * 2?", "answer": "It is 4. #### 4"}])
    (home / "gsm8k" / "test.jsonl").unlink()
    with pytest.raises(EnvironmentProblem, match=r"no test\.jsonl"):
        load_task(find_task("gsm8k"), home, None)
