"""What is said of texts that differ."""

import pytest
import torch

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.speculation.difference import Difference, find_difference


def written(model, prompt, new):
    return new_tokens(model, torch.tensor([prompt]), max_new_tokens=new)[0]


def test_equal_texts_have_no_difference(shared_model, random_text):
    model, prompt = shared_model("static_depth"), random_text(1, 7)[0].tolist()
    text = written(model, prompt, 6)
    assert find_difference(model, 0, prompt, text, list(text)) is None


@torch.no_grad()
def test_a_gap_beyond_rounding_is_a_defect(shared_model, random_text):
    """The gap is that of the plain model's logits; rounding in fp32 is far smaller than any gap of these weights."""
    model, prompt = shared_model("static_depth"), random_text(1, 7)[0].tolist()
    text = written(model, prompt, 6)
    other = [*text[:3], (text[3] + 1) % 97, *text[4:]]
    found = find_difference(model, 5, prompt, text, other)
    logits = model.backbone_model(torch.tensor([prompt + text[:3]])).logits[0, -1]
    assert (found.text, found.position, found.greedy, found.speculative) == (5, 3, text[3], other[3])
    assert found.gap == pytest.approx(float(logits[text[3]] - logits[other[3]]), abs=1e-4)
    assert 0 < found.bound < 1e-3 < found.gap and not found.is_near_tie


@torch.no_grad()
def test_an_exact_tie_is_a_near_tie(make_backbone, random_text):
    """Two tokens that the head cannot tell apart."""
    backbone_model, prompt = make_backbone("llama"), random_text(1, 7)[0].tolist()
    model = AdaptiveModel.build(backbone_model, "static_depth").eval()
    token = written(model, prompt, 3)[2]
    twin = token + 1
    backbone_model.lm_head.weight[twin] = backbone_model.lm_head.weight[token]
    text = written(model, prompt, 3)
    assert text[2] == token
    found = find_difference(model, 0, prompt, text, [*text[:2], twin])
    assert found.gap == 0.0 and found.is_near_tie


@pytest.mark.parametrize(("greedy", "other", "tokens"), [([4, 5], [4], (5, None)), ([4], [4, 5], (None, 5))])
def test_a_text_that_ends_elsewhere_is_a_defect(greedy, other, tokens, shared_model):
    found = find_difference(shared_model("static_depth"), 0, [3], greedy, other)
    assert found == Difference(0, 1, *tokens, None, None) and not found.is_near_tie
