"""Everything that is missing of a task is named at once, so that it can be fetched at once."""

import pytest

from adaptive_bench import hub
from adaptive_bench.data import Source, read_several
from adaptive_bench.errors import EnvironmentProblem, SeveralProblems
from adaptive_bench.hub import HubAnswer, Needed, OutOfReach, raise_together
from adaptive_bench.tasks.csqa.task import harness_docs

WORDS = Source("someone/words", fields=("text",))


@pytest.fixture
def off(monkeypatch):
    """A hub that nobody can ask."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("ADAPTIVE_BENCH_DATA", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    return hub


def test_explanations_are_named_with_the_questions(off):
    with pytest.raises(
        OutOfReach, match=r"commonsense_qa/train.jsonl, commonsense_qa/validation.jsonl, cos_e/v1.11/train"
    ):
        harness_docs()


def test_every_local_file_is_named(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "validation.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(EnvironmentProblem, match=r"(?s)no train.jsonl.*no test.jsonl"):
        read_several([(WORDS, "train"), (WORDS, "test")], tmp_path)


def test_what_is_there_is_read_in_order(tmp_path):
    (tmp_path / "words").mkdir()
    for split in ("train", "test"):
        (tmp_path / "words" / f"{split}.jsonl").write_text(f'{{"text": "{split}"}}\n')
    assert read_several([(WORDS, "test"), (WORDS, "train")], tmp_path) == [[{"text": "test"}], [{"text": "train"}]]


def test_what_is_out_of_reach_is_one_sentence_beside_other_errors():
    answer = HubAnswer("https://hub", False, "off", is_off=True)
    wrong = EnvironmentProblem("A row is wrong.")
    first, second = (OutOfReach([Needed("data set", name, f"{name}.jsonl")], answer) for name in "ab")
    with pytest.raises(SeveralProblems) as raised:
        raise_together([first, SeveralProblems([wrong, second]), wrong])
    assert [type(error) for error in raised.value.errors] == [OutOfReach, EnvironmentProblem]
    assert "a.jsonl, b.jsonl" in str(raised.value)
    raise_together([])
