"""SmolLM2-135M-Instruct at saving 0 writes what plain transformers writes."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from adaptive_bench.model import AdaptiveModel

pytestmark = pytest.mark.real
QUESTIONS = ["What is the capital of France?", "Name three colours, one a line.", "Hi"]


@pytest.fixture(scope="module")
def plain(smollm2):
    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


@pytest.mark.parametrize("spec", ["dense", "random_skip", "gateskip"])
def test_chats_padded_on_the_left_are_answered_as_by_transformers(spec, plain, smollm2):
    """Greedy, ragged prompts in the chat template; rows end at the turn's end, one after the other."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2, padding_side="left")
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    prompts = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    assert (prompts["attention_mask"][:, 0] == 0).any(), "one prompt should be shorter than another"
    model = AdaptiveModel.build(plain, spec).eval()
    model.saving = 0.0
    arguments = dict(prompts) | {"max_new_tokens": 24, "do_sample": False}
    assert torch.equal(model.generate(**arguments), plain.generate(**arguments))
