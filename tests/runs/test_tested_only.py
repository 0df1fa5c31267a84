"""A folder of local data with nothing but the documents that a task is tested on."""

import json

import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.runs import preflight, run
from adaptive_bench.runs.timing import TimingRequest, time_specs
from adaptive_bench.spec import parse_specs


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
def news(data):
    return data("wmt16_ro_en", test=[{"translation": {"en": f"{n} fish.", "ro": f"{n} pesti."}} for n in range(4)])


def test_documents_are_those_of_the_whole_data_set(data, news):
    before = [dict(one) for one in load_task(find_task("wmt16_en_ro"), news, None).eval_docs]
    data("wmt16_ro_en", validation=[{"translation": {"en": "A cat.", "ro": "O pisica."}}] * 9)
    whole = load_task(find_task("wmt16_en_ro"), news, 1)
    assert [dict(one) for one in whole.eval_docs] == before
    assert len(list(whole.fewshot_docs())) == 9


def test_models_as_they_are_need_no_training_split_but_are_not_timed_on_text_that_is_not_there(config_of, news):
    config = config_of(("dense", "random_skip"), tasks=("wmt16_en_ro",), data_dir=news, train={"steps": 0})
    assert run(config).exit_code == 0
    timing = {"prompt": 4, "new": 4, "out": config.out, "run": config}
    with pytest.raises(UsageError, match="wmt16_en_ro, has any"):
        time_specs(TimingRequest(tuple(parse_specs("dense")), config.model, (1,), **timing))


@pytest.mark.parametrize(
    ("methods", "changes", "words"),
    [
        ("dense", {"evaluation": {"num_fewshot": 2}}, ("Worked examples", "validation.jsonl", "--num-fewshot 0")),
        ("dense", {"train": {"steps": 3}}, ("train.jsonl",)),
        ("dense", {"train_on": ("wmt16_en_ro",)}, ("train.jsonl",)),
    ],
)
def test_what_needs_the_training_split_is_named_before_anything_is_computed(config_of, news, methods, changes, words):
    with pytest.raises(EnvironmentProblem) as problem:
        preflight(config_of(methods, **{"tasks": ("wmt16_en_ro",), "data_dir": news, "train": {"steps": 0}} | changes))
    assert all(word in str(problem.value) for word in words), problem.value


def test_other_text_does_for_calibration_and_what_is_tested_must_be_there(config_of, news, data):
    how = {"train_on": ("nano_math",), "evaluation": {"calibration": "pooled"}, "train": {"steps": 0}}
    preflight(config_of("gateskip", tasks=("wmt16_en_ro",), data_dir=news, **how), timed=False)
    with pytest.raises(EnvironmentProblem, match=r"Validation documents of 'wmt16_en_ro'.*its data has 'test'"):
        load_task(find_task("wmt16_en_ro"), news, None, "validation")
    home = data("wmt16_ro_en", validation=[{"translation": {"en": "A cat.", "ro": "O pisica."}}])
    (home / "wmt16_ro_en" / "test.jsonl").unlink()
    with pytest.raises(EnvironmentProblem, match=r"no test\.jsonl"):
        load_task(find_task("wmt16_en_ro"), home, None)
