"""`adaptive-bench speculate` on a tiny model and tasks of a plugin."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench import speculation
from adaptive_bench.cli.speed import speculation_text as shown
from adaptive_bench.model import AdaptiveModel

SMALL = "--limit 4 --max-new-tokens 6 --rounds 1 --device cpu"


@pytest.fixture
def speculate(command, model_folder, toy_plugin):
    """`speculate("--json")`: the command on the tiny model, or on `model=`; an option replaces the one in `SMALL`."""

    def run(more="", model=model_folder, tasks="toy_write"):
        small, given = SMALL.split(), more.split()
        kept = [part for pair in zip(small[::2], small[1::2], strict=True) if pair[0] not in given for part in pair]
        return command(f"speculate {model} --tasks {tasks} --plugin {toy_plugin} {' '.join(kept)} {more}")

    return run


@pytest.fixture
def saved(model_folder, tmp_path):
    """`saved(spec)`: the tiny model with a method, saved."""

    def save(spec):
        model = AdaptiveModel.build(AutoModelForCausalLM.from_pretrained(model_folder), spec, seed=3)
        model.save_pretrained(tmp_path / "saved", AutoTokenizer.from_pretrained(model_folder))
        return tmp_path / "saved"

    return save


def test_the_table_and_the_record(speculate, model_folder, tmp_path):
    found = speculate("--savings 0.5 -o record.json")
    assert found.exit_code == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if len(line) > 80] == []
    assert found.stdout.count("4/4") == 1
    record = json.loads((tmp_path / "record.json").read_bytes())
    assert (record["model"], record["texts"]) == (model_folder.name, 4)
    (point,) = record["points"]
    assert point["saving"] == 0.5 and point["dial"] == 1 and point["equal_texts"] == 4
    assert point["draft_saved"]["tokens"] == pytest.approx(0.5)


def test_prompts_are_those_of_the_task(speculate, model_folder):
    """Byte tokens: as many as the texts have characters; the plain model writes what greedy decoding is."""
    record = json.loads(speculate("--json --limit 3").stdout)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    expected = 0
    for number in range(3):
        ids = tokenizer(f"{number} + 1?=", return_tensors="pt").input_ids
        expected += model.generate(ids, max_new_tokens=6, do_sample=False).shape[1] - ids.shape[1]
    assert record["greedy"]["tokens"] == expected and record["shortened_prompts"] == 0
    record = json.loads(speculate("--json --max-new-tokens 508 --limit 3").stdout)
    assert record["shortened_prompts"] == 3  # 4 tokens are left for prompts of 7


@pytest.mark.parametrize("spec", ["layerskip", "random_skip"])
def test_a_saved_model_drafts_with_its_method(spec, speculate, saved):
    record = json.loads(speculate("--json --savings 0.5", model=saved(spec)).stdout)
    assert (record["model"], record["method"]) == ("saved", spec)
    assert [point["equal_texts"] for point in record["points"]] == [4]


def test_differences_are_counted_by_what_explains_them():
    speed = {"tokens_per_s": {"median": 10.0}, "bytes_per_token": 2e6, "flops_per_token": None}
    tie = {"text": 1, "position": 2, "greedy": 5, "speculative": 6, "gap": -1e-7, "bound": 2e-6, "near_tie": True}
    ended = tie | {"text": 2, "greedy": None, "gap": None, "bound": None, "near_tie": False}
    point = {
        "saving": 0.25, "draft_saved": {"tokens": 0.2}, "acceptance": 0.5, "tokens_per_verification": 2.0,
        "speedup": {"median": 0.8}, "equal_texts": 2, "differences": [tie, ended], **speed,
    }  # fmt: skip
    record = {
        "model": "m", "method": "mod", "texts": 4, "shortened_prompts": 0,
        "settings": {"drafts": 3, "tasks": ["toy"], "new": 9},
        "environment": {"device_name": "cpu", "threads": 1, "precision": "float32"},
        "greedy": speed, "points": [point, point | {"differences": []}],
    }  # fmt: skip
    text = " ".join(shown(record).split())
    assert " 20.0 " in text and "25.0" not in text  # what drafts saved, not what they were asked to
    assert "differ from greedy decoding: 1 from a near-tie on, which rounding explains, 1 by a defect." in text
    assert "differ from greedy" not in shown(record | {"points": [point | {"differences": []}]})


def test_a_defect_ends_with_exit_code_1(speculate, monkeypatch):
    whole = speculation.self_speculate

    def broken(*arguments, **more):
        found = whole(*arguments, **more)
        found.tokens.append(3)
        return found

    monkeypatch.setattr(speculation, "self_speculate", broken)
    found = speculate()
    assert found.exit_code == 1 and "0 from a near-tie on" in " ".join(found.stdout.split())


@pytest.mark.parametrize(
    ("more", "changed", "said"),
    [
        ("--method gateskip", {}, "calibrated on held-out training text"),
        ("--max-new-tokens 512", {}, "leave room for a prompt in the context of 512 tokens"),
        ("", {"tasks": "toy_read"}, "likelihood of whole texts"),
        ("", {"saved": "dash_halting[start=0]"}, "skips only in prompts"),
        ("--savings 0.25,0.9", {"saved": "layerskip"}, "layerskip cannot draft with 0.9 of --savings"),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(more, changed, said, speculate, saved, monkeypatch):
    monkeypatch.setattr(speculation, "new_tokens", lambda *_, **__: pytest.fail("measured"))
    if "saved" in changed:
        changed = {"model": saved(changed["saved"])}
    found = speculate(more, **changed)
    assert found.exit_code == 2 and said in found.said
