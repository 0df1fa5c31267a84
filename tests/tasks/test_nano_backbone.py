"""The shipped tokenizer takes any text, and the shipped weights load and stay small."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from adaptive_bench.task import Example, ExampleRequest
from adaptive_bench.tasks.nano.model import nano_folder
from adaptive_bench.tasks.nano.pretrain import Recipe, pretrain
from adaptive_bench.tasks.nano.sensitivity import dominance, sensitivities
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT
from adaptive_bench.tasks.nano.world import world

_TOKENIZER = AutoTokenizer.from_pretrained(nano_folder())
_MODEL = AutoModelForCausalLM.from_pretrained(nano_folder())
_EXAMPLES = [
    example
    for task in (NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT)
    for example in task.training(ExampleRequest(split="calibration", count=50, seed=1))
]


def _ids(text: str, tokenizer: PreTrainedTokenizerBase = _TOKENIZER) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@given(st.text())
def test_any_text_comes_back_unchanged(text: str) -> None:
    assert _TOKENIZER.decode(_ids(text), skip_special_tokens=False) == text


def test_no_token_holds_three_digits_or_a_line_break_with_something_else() -> None:
    for ids in range(len(_TOKENIZER)):
        text = _TOKENIZER.decode([ids])
        assert sum(character.isdigit() for character in text) <= 2
        assert text == "\n" or "\n" not in text
    assert len(_ids("12 + 7 = 30.")) == 6


def test_special_tokens_are_distinct_and_a_sequence_starts_with_bos() -> None:
    special = {_TOKENIZER.bos_token_id, _TOKENIZER.eos_token_id, _TOKENIZER.pad_token_id}
    assert len(special) == 3
    assert None not in special
    assert _TOKENIZER("Question")["input_ids"][0] == _TOKENIZER.bos_token_id


@pytest.mark.parametrize("example", _EXAMPLES[::10], ids=lambda example: example.prompt[-20:])
def test_prompt_and_completion_are_cut_at_a_token_boundary(example: Example) -> None:
    assert _ids(example.prompt + example.completion) == _ids(example.prompt) + _ids(example.completion)


def test_examples_are_short() -> None:
    assert max(len(_ids(example.prompt + example.completion)) for example in _EXAMPLES) < 128


def test_the_weights_load_and_are_under_eight_megabytes() -> None:
    size_bytes = sum(file.stat().st_size for file in nano_folder().iterdir())
    assert size_bytes < 8_000_000
    assert _MODEL.config.num_key_value_heads < _MODEL.config.num_attention_heads
    assert _MODEL.config.vocab_size == len(_TOKENIZER)
    assert _MODEL.dtype == torch.float32


def test_a_probe_of_the_head_costs_more_than_a_layer() -> None:
    layer = sum(parameter.numel() for parameter in _MODEL.model.layers[0].parameters())
    assert _MODEL.lm_head.weight.numel() > 1.5 * layer


def test_the_backbone_knows_the_world_and_sums_but_no_task() -> None:
    facts = random.Random(1).sample(list(world().facts), 40)
    statements = [world().state(subject, relation) for subject, relation in facts]
    known = sum(_continued(said.rpartition(" ")[0], said.rpartition(" ")[2]) for said in statements)
    assert known > 36
    sums = ("28 + 9 = 37.", "27 - 8 = 19.", "5 * 6 = 30.", "13 * 2 = 26.", "14 + 9 = 23.", "22 - 5 = 17.")
    assert sum(_continued(done.rpartition(" ")[0], done.rpartition(" ")[2]) for done in sums) >= 5
    recipe = json.loads((nano_folder() / "recipe.json").read_text())
    for scored in recipe["scores"].values():
        assert scored["nano_math"]["exact_match"] <= 0.1
        assert scored["nano_qa"]["exact_match"] <= 0.1


def _continued(start: str, end: str) -> bool:
    """Whether greedy decoding goes on with ` end`."""
    prompt = _TOKENIZER(start, return_tensors="pt")
    wanted = _ids(f" {end}")
    written = _MODEL.generate(**prompt, max_new_tokens=len(wanted), do_sample=False)
    return written[0, prompt["input_ids"].shape[1] :].tolist() == wanted


def test_the_recipe_says_how_the_weights_came_about() -> None:
    recipe = json.loads((nano_folder() / "recipe.json").read_text())
    assert recipe["parameters"] == _MODEL.num_parameters()
    assert recipe["tokens"] > 1_000_000
    assert {name: recipe[name] for name in asdict(Recipe())} == asdict(Recipe())


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, float]]:
    return sensitivities(_MODEL, _TOKENIZER)


def test_no_branch_dominates(measured: dict[str, dict[str, float]]) -> None:
    assert set(measured) == {"nano_text", "nano_math", "nano_qa"}
    for divergences in measured.values():
        assert len(divergences) == 2 * _MODEL.config.num_hidden_layers
        assert dominance(divergences) <= 10


def test_the_recipe_holds_what_hangs_on_each_branch(measured: dict[str, dict[str, float]]) -> None:
    recorded = json.loads((nano_folder() / "recipe.json").read_text())["sensitivities"]
    for kind, divergences in measured.items():
        assert recorded[kind] == pytest.approx(divergences, rel=0.02, abs=1e-4)


def test_the_recipe_is_deterministic(tmp_path: Path) -> None:
    for name in ("first", "again"):
        pretrain(tmp_path / name, Recipe(steps=2, seed=3), scored={"validation": 2})
    files = ("model.safetensors", "tokenizer.json")
    assert all((tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)
