"""The shipped tokenizer takes any text, and the shipped weights load and stay small."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nano_pretraining import Recipe, pretrain
from nano_sensitivity import add_branch_dropout, bypass, dominance, sensitivities
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from adaptive_bench.task import ExampleRequest
from adaptive_bench.tasks.nano.model import nano_folder, nano_qwen3_folder
from adaptive_bench.tasks.nano.task import NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT
from adaptive_bench.tasks.nano.world import world

_TOKENIZER = AutoTokenizer.from_pretrained(nano_folder())
_EXAMPLES = [
    example
    for task in (NANO_MATH, NANO_QA, NANO_QA_LL, NANO_TEXT)
    for example in task.training(ExampleRequest(split="calibration", count=50, seed=1))
]


def _ids(text, tokenizer=_TOKENIZER):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@given(st.text())
def test_any_text_comes_back_unchanged(text):
    assert _TOKENIZER.decode(_ids(text), skip_special_tokens=False) == text


def test_no_token_holds_three_digits_or_a_line_break_with_something_else():
    for ids in range(len(_TOKENIZER)):
        text = _TOKENIZER.decode([ids])
        assert sum(character.isdigit() for character in text) <= 2
        assert text == "\n" or "\n" not in text
    assert len(_ids("12 + 7 = 30.")) == 6
    special = {_TOKENIZER.bos_token_id, _TOKENIZER.eos_token_id, _TOKENIZER.pad_token_id}
    assert len(special - {None}) == 3 and _TOKENIZER("Question")["input_ids"][0] == _TOKENIZER.bos_token_id


def test_prompt_and_completion_are_cut_at_a_token_boundary_and_short():
    for example in _EXAMPLES[::10]:
        whole = _ids(example.prompt + example.completion)
        assert whole == _ids(example.prompt) + _ids(example.completion) and len(whole) < 128


@dataclass(frozen=True)
class _Shipped:
    """A backbone as the package has it."""

    family: str
    folder: Path
    model: PreTrainedModel

    @property
    def recipe(self):
        """How its weights came about; a recipe of before there were families says nothing of one."""
        return {"family": "llama"} | json.loads((self.folder / "recipe.json").read_text())


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def shipped(request):
    folder = {"llama": nano_folder, "qwen3": nano_qwen3_folder}[request.param]()
    return _Shipped(request.param, folder, AutoModelForCausalLM.from_pretrained(folder))


def test_the_weights_load_and_are_under_eight_megabytes(shipped):
    size_bytes = sum(file.stat().st_size for file in shipped.folder.iterdir())
    assert size_bytes < 8_000_000
    config = shipped.model.config
    assert config.model_type == shipped.family
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.vocab_size == len(_TOKENIZER)
    assert shipped.model.dtype == torch.float32
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (shipped.folder / name).read_bytes() == (nano_folder() / name).read_bytes()  # one for all families
    # A probe of the head costs more than a layer.
    layer = sum(parameter.numel() for parameter in shipped.model.model.layers[0].parameters())
    assert shipped.model.lm_head.weight.numel() > 1.5 * layer


def test_the_backbone_knows_the_world_and_sums_but_no_task(shipped):
    facts = random.Random(1).sample(list(world().facts), 40)
    statements = [world().state(subject, relation) for subject, relation in facts]
    known = sum(_continued(shipped.model, said.rpartition(" ")[0], said.rpartition(" ")[2]) for said in statements)
    assert known > 36
    sums = ("28 + 9 = 37.", "27 - 8 = 19.", "5 * 6 = 30.", "13 * 2 = 26.", "14 + 9 = 23.", "22 - 5 = 17.")
    right = sum(_continued(shipped.model, done.rpartition(" ")[0], done.rpartition(" ")[2]) for done in sums)
    assert right >= 5
    for scored in shipped.recipe["scores"].values():
        assert scored["nano_math"]["exact_match"] <= 0.1
        assert scored["nano_qa"]["exact_match"] <= 0.1


def _continued(model, start, end):
    """Whether greedy decoding goes on with ` end`."""
    prompt = _TOKENIZER(start, return_tensors="pt")
    wanted = _ids(f" {end}")
    written = model.generate(**prompt, max_new_tokens=len(wanted), do_sample=False)
    return written[0, prompt["input_ids"].shape[1] :].tolist() == wanted


def test_the_recipe_says_how_the_weights_came_about(shipped):
    recipe, asked = shipped.recipe, asdict(Recipe(family=shipped.family))
    assert recipe["parameters"] == shipped.model.num_parameters()
    assert recipe["tokens"] > 1_000_000
    assert {name: recipe[name] for name in asked} == asked


def test_the_recipe_holds_what_hangs_on_each_branch_and_none_dominates(shipped):
    measured = sensitivities(shipped.model, _TOKENIZER)
    assert set(measured) == {"nano_text", "nano_math", "nano_qa"}
    for kind, divergences in measured.items():
        assert len(divergences) == 2 * shipped.model.config.num_hidden_layers and dominance(divergences) <= 10
        assert shipped.recipe["sensitivities"][kind] == pytest.approx(divergences, rel=0.02, abs=1e-4)


@pytest.mark.slow
def test_the_recipe_is_deterministic(tmp_path):
    for name in ("first", "again"):
        pretrain(tmp_path / name, Recipe(steps=2, seed=3), scored={"validation": 2})
    files = ("model.safetensors", "tokenizer.json")
    assert all((tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)


def test_a_share_of_the_tokens_passes_by_a_branch_in_training_alone():
    branch = torch.nn.Identity().eval()
    bypass(branch, 0.36, torch.Generator().manual_seed(1), training=False)
    output = branch(torch.ones(50, 60, 4))
    assert set(output.sum(dim=-1).unique().tolist()) == {0.0, 4.0}  # whole tokens, and none is scaled
    assert output.mean().item() == pytest.approx(1 - 0.36, abs=0.03)
    model, ids = AutoModelForCausalLM.from_pretrained(nano_folder()).eval(), torch.arange(3, 15)[None]
    untouched = model(input_ids=ids).logits
    add_branch_dropout(model, 0.5, seed=1)
    assert torch.equal(model(input_ids=ids).logits, untouched)
    first, second = (model.train()(input_ids=ids).logits for _ in range(2))
    assert not torch.equal(first, second) and not torch.equal(first, untouched)
