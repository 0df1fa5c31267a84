"""The shipped tokenizer takes any text, and the shipped weights load and stay small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from adaptive_bench.task import Example, ExampleRequest
from adaptive_bench.tasks.nano.model import nano_folder
from adaptive_bench.tasks.nano.pretrain import pretrain
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL

_TOKENIZER = AutoTokenizer.from_pretrained(nano_folder())
_EXAMPLES = [
    example
    for task in (NANO_MATH, NANO_QA, NANO_QA_LL)
    for example in task.training(ExampleRequest(split="calibration", count=50, seed=1))
]


def _ids(text: str, tokenizer: PreTrainedTokenizerBase = _TOKENIZER) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@given(st.text())
def test_any_text_comes_back_unchanged(text: str) -> None:
    assert _TOKENIZER.decode(_ids(text), skip_special_tokens=False) == text


def test_no_token_holds_two_digits_or_a_line_break_with_something_else() -> None:
    for ids in range(len(_TOKENIZER)):
        text = _TOKENIZER.decode([ids])
        assert sum(character.isdigit() for character in text) <= 1
        assert text == "\n" or "\n" not in text
    assert len(_ids("12 + 7 = 190")) == 8


def test_special_tokens_are_distinct_and_a_sequence_starts_with_bos() -> None:
    special = {_TOKENIZER.bos_token_id, _TOKENIZER.eos_token_id, _TOKENIZER.pad_token_id}
    assert len(special) == 3
    assert None not in special
    assert _TOKENIZER("Question")["input_ids"][0] == _TOKENIZER.bos_token_id


@pytest.mark.parametrize("example", _EXAMPLES[::10], ids=lambda example: example.prompt[-20:])
def test_prompt_and_completion_are_cut_at_a_token_boundary(example: Example) -> None:
    assert _ids(example.prompt + example.completion) == _ids(example.prompt) + _ids(example.completion)


def test_examples_are_short() -> None:
    assert max(len(_ids(example.prompt + example.completion)) for example in _EXAMPLES) < 100


def test_the_weights_load_and_are_under_eight_megabytes() -> None:
    size_bytes = sum(file.stat().st_size for file in nano_folder().iterdir())
    assert size_bytes < 8_000_000
    model = AutoModelForCausalLM.from_pretrained(nano_folder())
    assert model.config.num_key_value_heads < model.config.num_attention_heads
    assert model.config.vocab_size == len(_TOKENIZER)
    assert model.dtype == torch.float32
    prompt = _TOKENIZER(
        "Question: Mia has 12 apples. She buys 7 more. How many apples does Mia have now?\nAnswer:", return_tensors="pt"
    )
    written = model.generate(**prompt, max_new_tokens=30, do_sample=False)
    assert "12 + 7 = 19" in _TOKENIZER.decode(written[0])
    assert written[0, -1] == _TOKENIZER.eos_token_id


def test_the_recipe_says_how_the_weights_came_about() -> None:
    recipe = json.loads((nano_folder() / "recipe.json").read_text())
    assert recipe["parameters"] == AutoModelForCausalLM.from_pretrained(nano_folder()).num_parameters()
    assert recipe["tokens"] > 1_000_000


def test_the_recipe_is_deterministic(tmp_path: Path) -> None:
    for name in ("first", "again"):
        pretrain(tmp_path / name, steps=2, seed=3, scored={"calibration": 2})
    files = ("model.safetensors", "tokenizer.json")
    assert all((tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)
