"""What is found before anything is trained."""

import json
import shutil
from types import SimpleNamespace

import pytest

from adaptive_bench.config import load_config
from adaptive_bench.errors import EnvironmentProblem, SeveralProblems, UsageError
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.recipe import ForModels
from adaptive_bench.runs import about, plan, preflight, run
from adaptive_bench.runs import run_checks as memory
from adaptive_bench.runs.model_checks import Findings, preset_by_size
from adaptive_bench.runs.run_checks import _check_length
from adaptive_bench.runs.timing import TimingRequest, time_specs
from adaptive_bench.spec import parse_specs


def test_a_sound_run_has_no_notes(config_of):
    found = preflight(config_of("dense,gateskip"))
    assert found.notes == []
    assert found.facts is not None and found.facts.family == "llama" and found.facts.context == 512
    text = "\n".join(about(config_of("dense,gateskip"), found))
    for part in ("llama", "3 steps of 2 sequences", "disk", "FLOPs", "time    about"):
        assert part in text
    assert "rough" not in text


def test_notes_are_recorded_and_still_known_when_everything_is_on_disk(config_of):
    config = config_of("dense", train={"warmup_steps": 3})
    outcome = run(config)
    (note,) = [warning for warning in outcome.warnings if "never reaches its peak" in warning]
    about = json.loads((outcome.folder / "run.json").read_text())
    assert about["notes"] == [note] and about["warnings"] == outcome.warnings
    assert note in run(config).warnings


def test_a_run_counts_the_documents_it_leaves_out(config_of, changed_model):
    """Those that are too long, the same for every method; what is asked is on record and found again."""
    how = {"model": str(changed_model(max_position_embeddings=330)), "tasks": ("nano_math",), "train": {"steps": 0}}
    otherwise = {"stop_strings": ["a", "b"], "max_new_tokens": 5, "system_prompt": "Be brief. ", "skip_overlong": True}
    config = config_of(("dense", "random_skip"), evaluation={"limit": 12, "num_fewshot": 1, **otherwise}, **how)
    outcome = run(config)
    (note,) = [text for text in outcome.warnings if "left out, for every method alike (" in text]
    (documents,) = {
        tuple(one.doc for one in sweep.record.samples(saving))
        for sweep in plan(config).sweeps
        for saving in sweep.record.savings()
    }
    assert 0 < len(documents) < 12 and note.startswith(f"{12 - len(documents)} of 12 documents of nano_math")
    assert {row["documents"] for row in outcome.rows} == {len(documents)}
    assert run(config).rows == outcome.rows


def test_prompts_that_lose_their_beginning_are_noted(config_of, changed_model):
    notes = preflight(config_of("dense", model=str(changed_model(max_position_embeddings=120)))).notes
    assert [note for note in notes if "lose their beginning" in note]


def words(text):
    return SimpleNamespace(input_ids=text.split())


def test_behind_a_prompt_that_is_cut_short_may_be_one_without_room():
    def check(*tokens, shots=0, skips=False):
        instances = [
            SimpleNamespace(request_type="generate_until", doc_id=n, args=("a " * length, {"max_gen_toks": 20}))
            for n, length in enumerate(tokens)
        ]
        harness = SimpleNamespace(instances=instances, config=SimpleNamespace(num_fewshot=shots))
        found = Findings()
        _check_length(SimpleNamespace(name="long"), harness, words, 32, found, skips=skips)
        return found.notes

    (note,) = check(10, 15, 25, 20)
    assert "(25 tokens" in note and "leave 7 of 20 tokens" in note and check(5, 10) == []
    with pytest.raises(UsageError, match=r"document 2 of 'long' has 32\. Choose a model with a longer context"):
        check(30, 32)
    with pytest.raises(UsageError, match=r"has 40\. Lower --num-fewshot or choose"):
        check(30, 40, shots=2)
    with pytest.raises(UsageError, match="leave such documents out with --skip-overlong"):
        check(40)
    left, cut = check(40, 25, skips=True)
    assert "document 1 with 40, are left out" in left and "(25 tokens" in cut


def test_a_recipe_for_others_unless_nothing_is_trained_and_a_phase_in_which_nothing_is_written_are_refused(config_of):
    meant = {"for_models": ForModels(names=("other",)), "preset": "mine"}
    with pytest.raises(UsageError, match=r"recipe of mine .* is for other, got the model .*--any-model"):
        preflight(config_of("dense", **meant))
    assert preflight(config_of("dense", train={"steps": 0}, **meant)).facts
    with pytest.raises(UsageError, match="got only nano_qa_ll, where no token is"):
        preflight(config_of(tasks=("nano_qa_ll",), match_phase="decode"), timed=False)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"tasks": ("nano_text",), "evaluation": {"num_fewshot": 2}}, "--num-fewshot 2 does nothing on nano_text"),
        (
            {"tasks": ("nano_qa_ll", "nano_math"), "match_phase": "decode"},
            "With --phase decode nano_qa_ll has no",
        ),
        ({"train": {"warmup_steps": 3}}, "never reaches its peak"),
    ],
)
def test_settings_that_do_nothing_are_noted(config_of, changes, note):
    assert [one for one in preflight(config_of(**changes), timed=False).notes if note in one]


def test_everything_that_is_wrong_is_said_at_once(config_of, changed_model):
    ((folder := changed_model()) / "tokenizer.json").unlink()
    config = config_of("dense,free[shallow_layers=9]", model=str(folder), evaluation={"num_fewshot": 100_000})
    with pytest.raises(SeveralProblems) as caught:
        preflight(config)
    kinds = [type(error) for error in caught.value.errors]
    assert kinds.count(UsageError) == 1 and kinds.count(EnvironmentProblem) == 2
    assert "Check the data and --num-fewshot" in str(caught.value) and caught.value.exit_code == 2


def test_a_disk_that_is_too_small_is_an_error(config_of, monkeypatch):
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(EnvironmentProblem, match=r"disk space.*--out"):
        preflight(config_of("dense"))


def test_a_model_gets_the_preset_of_its_size_and_one_that_no_preset_takes_is_left_to_the_user(
    model_folder, monkeypatch
):
    assert preset_by_size(str(model_folder)) == "pretrained_small"
    small, large = load_config("pretrained_small"), load_config("pretrained_large")
    assert small.train.learning_rate > large.train.learning_rate
    assert small.for_models and not small.for_models.fit("x", "llama", 10**9)
    monkeypatch.setattr("adaptive_bench.runs.model_checks.default_presets", lambda: {})
    with pytest.raises(UsageError, match="no preset is for"):
        preset_by_size(str(model_folder))


@pytest.mark.parametrize(("free", "jobs"), [(100_000, 1), (150_000, 2)])
def test_a_training_that_does_not_fit_with_one_sequence_is_refused(config_of, monkeypatch, free, jobs):
    monkeypatch.setattr(memory, "free_on", lambda _: free)
    rule = r"needs about .* with one sequence of \d+ tokens at a time"
    with pytest.raises(EnvironmentProblem, match=rule) as refused:
        preflight(config_of("gateskip"), jobs=jobs)
    assert str(refused.value).count(", ") >= 2 and "--jobs 1" in str(refused.value)
    assert preflight(config_of("gateskip", train={"steps": 0}), jobs=jobs).plan


# A folder of local data with nothing but the documents that a task is tested on.


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
