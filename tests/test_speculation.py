"""What is measured beside greedy decoding: costs by hand, equal texts, and what is refused."""

from pathlib import Path

import pytest
import torch

from adaptive_bench import speculation
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.speculative_decoding import self_speculate
from adaptive_bench.progress import SilentReporter
from adaptive_bench.speculation import Settings, defects, find_difference, study

LENGTHS = (7, 3, 9, 5)


@pytest.fixture
def measured(monkeypatch, random_text):
    """`measured(model, **settings)`: the record over four prompts of different lengths, and these."""

    def run(model, ends=(), lengths=LENGTHS, **settings):
        rows = [random_text(1, length, seed)[0].tolist() for seed, length in enumerate(lengths)]
        monkeypatch.setattr(speculation, "prompts_of", lambda *_: (rows, 0, ends))
        drafter = Subjects("tiny", [model], None, Path())
        given = {"tasks": ("toy",), "savings": (0.3,), "drafts": 3, "new": 9, "rounds": 1} | settings
        return study(drafter, Settings(**given), SilentReporter()), rows

    return run


def test_costs_are_those_counted_by_hand(measured, shared_model):
    """T-SV1: of static depth, which leaves out layer 2 of 0 .. 3: 0 and 1 run once for drafts and verification."""
    model, left_out, shared = shared_model("static_depth"), {2}, 2
    record, (prompt,) = measured(model, lengths=(7,), new=14)
    costs, backbone = model.backbone.costs, model.backbone
    linear = costs.attn_q_o + costs.attn_kv + costs.mlp
    weights, head = costs.attention_bytes + costs.mlp_bytes, backbone.head_bytes
    greedy, (point,) = record["greedy"], record["points"]
    assert greedy["decoded_tokens"] == point["decoded_tokens"] == 13
    assert greedy["bytes_per_token"] == weights.sum() + head
    pairs = sum(len(prompt) + step for step in range(1, 14))
    macs = 13 * (linear.sum() + backbone.head_macs) + pairs * costs.pair.sum()
    assert greedy["flops_per_token"] == pytest.approx(2 * macs / 13, rel=1e-12)

    dial = model.method.dial_for(0.3)
    rounds = self_speculate(model, torch.tensor([prompt]), draft_dial=dial, drafts=3, max_new_tokens=14).rounds
    macs = read = 0.0
    cached = len(prompt)
    for one in rounds:
        for step in range(1, one.drafted + 1):
            run = [layer for layer in range(4) if layer not in left_out]
            macs += sum(linear[layer] + (cached + step) * costs.pair[layer] for layer in run) + backbone.head_macs
            read += sum(weights[layer] for layer in run) + head
        keys = cached + one.drafted + 1
        for layer in range(4):
            queries = 1 if layer < shared else one.drafted + 1
            macs += queries * (linear[layer] + keys * costs.pair[layer])
        macs += (one.drafted + 1) * backbone.head_macs
        read += weights.sum() + head
        cached = one.cached
    assert point["drafted"] == sum(one.drafted for one in rounds) > 0
    assert point["acceptance"] == sum(one.accepted for one in rounds) / point["drafted"]
    assert point["tokens_per_verification"] == 13 / len(rounds)
    assert point["bytes_per_token"] == pytest.approx(read / 13, rel=1e-12)
    assert point["flops_per_token"] == pytest.approx(2 * macs / 13, rel=1e-12)


def test_a_wrong_text_is_a_defect(measured, shared_model, monkeypatch):
    """What a broken verifier would write is told with its place and gap: that of the plain model's logits. Rounding in
    fp32 is far smaller than any gap of these weights.
    """
    model = shared_model("static_depth")

    def broken(model, ids, **more):
        found = self_speculate(model, ids, **more)
        if ids.shape[1] == LENGTHS[0]:
            found.tokens[4] = (found.tokens[4] + 1) % 97
        return found

    monkeypatch.setattr(speculation, "self_speculate", broken)
    record, (prompt, *_) = measured(model)
    (point,) = record["points"]
    (difference,) = point["differences"]
    assert (point["equal_texts"], difference["text"], difference["position"]) == (3, 0, 4)
    with torch.no_grad():
        logits = model.backbone_model(torch.tensor([prompt + written(model, prompt, 4)])).logits[0, -1]
    gap = float(logits[difference["greedy"]] - logits[difference["speculative"]])
    assert difference["gap"] == pytest.approx(gap, abs=1e-4) and 0 < difference["bound"] < 1e-3 < difference["gap"]
    assert not difference["near_tie"] and defects(record) == 1


def test_one_token_a_text(measured, shared_model):
    """Where every text ends with the token its prompt gives, there is nothing to speculate about."""
    model = shared_model("static_depth")
    record, (prompt,) = measured(model, lengths=(7,))
    first = new_tokens(model, torch.tensor([prompt]), max_new_tokens=1)[0][0]
    record, _ = measured(model, lengths=(7,), ends=(first,))
    (point,) = record["points"]
    assert point["acceptance"] is point["bytes_per_token"] is point["tokens_per_verification"] is None
    assert point["equal_texts"] == 1


def written(model, prompt, new):
    return new_tokens(model, torch.tensor([prompt]), max_new_tokens=new)[0]


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
    assert found["gap"] == 0.0 and found["near_tie"]


@pytest.mark.parametrize(("greedy", "other", "tokens"), [([4, 5], [4], (5, None)), ([4], [4, 5], (None, 5))])
def test_a_text_that_ends_elsewhere_is_a_defect(greedy, other, tokens, shared_model):
    found = find_difference(shared_model("static_depth"), 0, [3], greedy, other)
    assert (found["position"], found["greedy"], found["speculative"]) == (1, *tokens)
    assert found["gap"] is found["bound"] is None and not found["near_tie"]
