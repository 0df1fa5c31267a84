"""What a method that was not trained makes of a pretrained model: the model itself, or what the method declares."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from adaptive_bench import registry
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.testing.subject import BOS, massive_backbone, random_text

METHODS = [name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")]
TEXT = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "data" / "c4_sample" / "train.jsonl"
ROWS, LENGTH = 2, 256
SAMPLED = 0.02  # of the token-branches; sampled choices that lean towards "execute" by 5 leave out 0.7 %
NATS = 0.25  # what that changes in a loss


def skipped(model, ids, **arguments):
    """What a call gives, and the share of all token-branches that it leaves out, by masks or by factors of 0."""
    left_out = 0.0
    with torch.no_grad(), recorded_decisions(model.method) as decisions:
        output = model(ids, **arguments)
    for site, decision in decisions:
        ran = decision.keep
        if decision.scale is not None:
            ran = ran & (decision.scale != 0).any(dim=-1)
        left_out += float((~ran).float().mean()) * (2 if site.branch == "layer" else 1)
    return output, left_out / (2 * model.method.backbone_size[0])


@pytest.fixture(scope="module")
def massive():
    return massive_backbone("llama")


@pytest.mark.parametrize("spec", ["skipgpt", "skipgpt[router=two_layer]", "skipgpt[mlp_reads=branch_input]", "d_llm"])
def test_massive_activations_close_no_router(massive, spec):
    """At offset 0 an untrained router runs every token, be its state 50 times as long as others."""
    text = random_text((10,) * 8)
    text.input_ids[:, 0] = BOS
    model = AdaptiveModel.build(massive, spec).eval()
    for model.dial in (49.999, 0.0):
        output, share = skipped(model, text.input_ids)
        assert share == 0.0 and torch.equal(output.logits, massive(text.input_ids).logits)


@pytest.fixture(scope="module")
def smollm2_on_text(smollm2):
    """The plain model, ids [2, 256] of web text, its logits and its loss, as transformers has them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not TEXT.is_file():
        pytest.skip(f"c4_sample is not beside the project, at {TEXT}")
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    rows = [
        tokenizer(json.loads(line)["text"]).input_ids for line in TEXT.read_text(encoding="utf-8").splitlines()[:99]
    ]
    ids = torch.tensor([row[:LENGTH] for row in rows if len(row) >= LENGTH][:ROWS])
    plain = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    with torch.no_grad():
        output = plain(ids, labels=ids)
    return plain, ids, output.logits, float(output.loss)


@pytest.mark.real
@pytest.mark.parametrize("spec", [*METHODS, "gateskip@paper", "gateskip[shape=scalar]", "gateskip[input=residual]"])
def test_smollm2_starts_as_the_pretrained_model(smollm2_on_text, spec):
    """At skip-nothing, next to it, and in the first step of a training: as plain transformers, or as is declared."""
    plain, ids, logits, loss = smollm2_on_text
    model = AdaptiveModel.build(plain, spec).eval()
    method = model.method
    declared = method.initial_change(method.config)
    bound, most = (declared.bound, declared.skipped) if declared is not None else (0.0, 0.0)
    follows = torch.arange(LENGTH).expand_as(ids) >= LENGTH // 2

    output, share = skipped(model, ids, continuation_mask=follows)
    change = output.logits - logits
    assert share == 0.0
    assert float(change.std() / logits.std()) <= bound if bound else float(change.abs().max()) <= 1e-4
    if method.solves_dial and method.fitted is None:  # else it has to be measured first
        for model.dial in [method.dial.at(1e-5)] + [0.0] * (method.dial.name == "execute_offset"):
            assert skipped(model, ids, continuation_mask=follows)[1] <= 0.005

    if not method.trains:
        return
    model.prepare_training([{"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": follows}])
    model.train().begin_step(1, 100)
    output, share = skipped(model, ids, continuation_mask=follows, labels=ids)
    assert share <= max(SAMPLED, most)
    assert model.loss_terms["ce"] == pytest.approx(
        float(cross_entropy(output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())), abs=1e-3
    )
    if not bound and not most:
        assert model.loss_terms["ce"] == pytest.approx(loss, abs=NATS if share else 1e-4)
