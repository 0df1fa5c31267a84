"""Bits per byte of any text, and corpora to train on."""

import json
import math
from pathlib import Path

import pytest
from lm_eval import evaluator
from lm_eval.api.model import LM

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.task import ExampleRequest
from adaptive_bench.tasks.perplexity import task as texts


class _OneBitAByte(LM):
    """Gives every byte a probability of one half."""

    def loglikelihood_rolling(self, requests):
        return [-math.log(2) * len(request.args[0].encode()) for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    def generate_until(self, requests):
        raise NotImplementedError


def _write(folder, split, documents):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))


def _documents(name, data_dir):
    return [document["text"] for document in load_task(find_task(name), data_dir, None).eval_docs]


def _train(name, data_dir, split="train", count=10_000, seed=1):
    task = find_task(name)
    return task.training(ExampleRequest(split, count, seed, data_dir, length=8))


def test_bits_per_byte_of_a_file_and_of_a_folder(tmp_path):
    (tmp_path / "one.txt").write_text("Über den Wolken", encoding="utf-8")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "two.txt").write_text("zwei")
    _write(tmp_path / "more", "three", ["drei", "vier"])
    for name, wanted in (("one.txt", 1), ("more", 3)):
        task = find_task(f"perplexity:{tmp_path / name}")
        assert task.training is None and task.other_files
        with quiet():
            loaded = load_task(task, None, None)
            found = evaluator.evaluate(
                _OneBitAByte(), {"tasks": {task.name: loaded}, "groups": {}, "group_map": {}}, bootstrap_iters=0
            )
        assert len(loaded.eval_docs) == wanted
        assert found["results"][task.name]["bits_per_byte,none"] == pytest.approx(1.0)


def test_the_split_for_testing_is_measured_and_the_training_split_learned(tmp_path):
    _write(tmp_path / "letters", "train", [f"training {n}" for n in range(200)])
    _write(tmp_path / "letters", "validation", ["validation"])
    assert _documents("perplexity:letters", tmp_path) == ["validation"]
    train, calibration = (_train("perplexity:letters", tmp_path, split) for split in ("train", "calibration"))
    assert all(example.prompt == "" for example in train)
    assert not {example.completion for example in train} & {example.completion for example in calibration}
    assert 150 < len(train) < 195 and calibration
    loaded = load_task(find_task("perplexity:letters"), tmp_path, None, "validation")
    chosen_on = {document["text"] for document in loaded.eval_docs}
    assert chosen_on and not chosen_on & {example.completion for example in [*train, *calibration]}


def test_held_out_documents_are_measured_where_there_is_a_training_split_only(tmp_path):
    _write(tmp_path / "letters", "train", [f"document {n}" for n in range(400)])
    measured = set(_documents("perplexity:letters", tmp_path))
    assert measured
    for split in ("train", "calibration"):
        assert not measured & {example.completion for example in _train("perplexity:letters", tmp_path, split)}
    with pytest.raises(EnvironmentProblem, match="Validation documents"):
        load_task(find_task("perplexity:letters"), tmp_path, None, "validation")


def test_a_corpus_gives_as_much_as_is_wanted_in_an_order_of_the_seed(tmp_path):
    _write(tmp_path / "letters", "train", [f"{n:>40}" for n in range(400)])
    few, same, other = (_train("perplexity:letters", tmp_path, count=20, seed=seed) for seed in (1, 1, 2))
    assert 20 * 8 * 5 <= sum(len(example.completion) for example in few) < 20 * 8 * 5 + 40
    assert few == same != other
    assert sorted(example.completion for example in few) == sorted(example.completion for example in other)


def test_the_hub_is_streamed(monkeypatch):
    asked = []

    def rows(source, split):
        asked.append((str(source), split))
        return ({"text": f"page {n}"} for n in range(10**9))

    monkeypatch.setattr(texts, "stream_rows", rows)
    assert len(_train("perplexity:HuggingFaceFW/fineweb", None, count=3)) > 3
    assert asked == [("HuggingFaceFW/fineweb (sample-10BT)", "train")]
    assert 400 < len(_documents("perplexity:HuggingFaceFW/fineweb", None)) < 800


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"caf\xe9", "latin.txt", r"A text file is UTF-8, but .*latin.txt cannot be read"),
        (b" \n", "empty.txt", r"empty.txt is empty"),
        (b'{"text": "x"}\n{"text": null}\n', "no.jsonl", r"row 2 of .*no\.jsonl the field 'text' holds a text, got"),
        (b"", "none.txt", r"there is none at|none is at"),
    ],
)
def test_files_that_cannot_be_read_are_told(content, name, message, tmp_path):
    if content:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(EnvironmentProblem, match=message):
        load_task(find_task(f"perplexity:{tmp_path / name}"), None, None)


def test_a_folder_is_a_corpus_where_it_is_written_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    Path("notes").mkdir()
    Path("notes/one.txt").write_text("eins")
    for name in ("./notes", "notes/"):
        assert _documents(f"perplexity:{name}", None) == ["eins"]
    with pytest.raises(UsageError, match=r"'notes' is also a path from here.* write perplexity:\./notes;"):
        _documents("perplexity:notes", None)
    Path("notes/read.md").write_text("# Read")
    with pytest.raises(UsageError, match=r"got the file 'notes/read\.md'"):
        find_task("perplexity:notes/read.md")
