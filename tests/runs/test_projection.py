"""Projected savings: what another model's layers, gates, probes and head would make of the same decisions."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from adaptive_bench import registry
from adaptive_bench.methods.gateskip import GateSkip
from adaptive_bench.runs.projection import Projection, find_shape, priced, projected
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.evaluation import Evaluation

BUILT_IN = [
    name for name in registry.names("methods") if registry.origin("methods", name).startswith("adaptive-bench ")
]
VARIANTS = ["gateskip[architecture=mlp,shape=scalar]", "gateskip[sharing=shared]", "gateskip[kv=evict]@paper"]
VARIANTS += ["mod@paper", "free@paper", "router_tuned_mod@paper", "calm[confidence=state]"]
VARIANTS += ["random_skip[kv=copy_below]", "random_skip[compensate=scale]", "static_depth[compensate=scale]"]
MODELS = [(spec, "llama") for spec in BUILT_IN + VARIANTS]
MODELS += [("gateskip", family) for family in ("qwen2", "qwen3", "gemma2", "mistral")]


def onto(spec, layers, shape):
    """From a model of so many layers onto a shape."""
    return Projection(spec, *priced(shape, layers))


def measured(model, random_text, saving=0.3):
    """The report of a batch of prompts and of what is written after them."""
    model.dial = model.method.dial_for(min(saving, model.method.max_saved_tokens))
    model.reset_ledger()
    mask = torch.arange(12).expand(3, 12) >= torch.tensor([[0], [4], [11]])
    model.generate(random_text(3, 12), attention_mask=mask, max_new_tokens=5)
    return model.compute_report()


@pytest.mark.parametrize(("spec", "family"), MODELS)
def test_projected_onto_the_measured_model_it_is_the_measured_saving(spec, family, shared_model, random_text):
    model = shared_model(spec, family)
    report = measured(model, random_text)
    projection = onto(model.spec, model.backbone.num_layers, model.backbone.config)
    expected = {"all": report["saved"]["net"], "prefill": report["prefill"]["net"], "decode": report["decode"]["net"]}
    assert projection.net(report["counts"]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "layer", "head", "billions"),
    [
        ("llama-3.2-1b", 60.82, 262.7, 1.24),
        ("llama-3.2-3b", 100.66, 394.0, 3.21),
        ("llama-3.1-8b", 218.10, 525.3, 8.03),
        ("gemma-2-2b", 77.86, 589.8, 2.61),
    ],
)
def test_a_shape_has_the_costs_and_the_size_of_its_model(name, layer, head, billions):
    """Methods.md 2.1, in millions of MACs."""
    with torch.device("meta"):
        parameters = AutoModelForCausalLM.from_config(find_shape(name)).parameters()
    assert sum(each.numel() for each in parameters) / 1e9 == pytest.approx(billions, abs=0.006)
    backbone = onto(MethodSpec("dense"), 2, find_shape(name)).backbone
    costs = backbone.costs
    assert (costs.attn_q_o + costs.attn_kv + costs.mlp)[0] / 1e6 == pytest.approx(layer, abs=0.005)
    assert backbone.head_macs / 1e6 == pytest.approx(head, abs=0.05)
    assert backbone.head_macs == find_shape(name).vocab_size * backbone.hidden_size


def _counts(layers, tokens, kept, **runs):
    """Counts of a decode without attention pairs and without repairs: `kept` tokens execute each branch."""
    row = [tokens, kept, kept, 1.0, tokens, kept, kept, 1.0, kept, 0.0, 0.0, 0.0, tokens, 0.0, 0.0]
    nothing = {"work": [[0.0] * 15] * layers, "runs": {}}
    return {"prefill": nothing, "decode": {"work": [row] * layers, "runs": {"head": tokens, **runs}}}


def test_vector_gates_cost_what_they_cost_in_the_real_model():
    """Methods.md 2.3: two gates of H x H per layer, 20 % skipped with K,V kept, as a share of the layers' MACs."""
    layers, shape = 4, find_shape("llama-3.2-1b")
    gates = {f"method.gates.{number}": 100.0 for number in range(2 * layers)}
    counts = _counts(layers, 100.0, 80.0, **gates)
    for row in counts["decode"]["work"]:
        row[8], row[9] = 100.0, 20.0  # K,V of the skipped are projected
    net = onto(MethodSpec("gateskip"), layers, shape).net(counts)
    of_layers = net["decode"] * (16 * 60.82 + 262.7) / (16 * 60.82)
    assert of_layers == pytest.approx(0.055, abs=0.001)
    assert net["prefill"] is None and net["all"] == net["decode"]


def test_deeper_models_have_more_gates_but_as_many_probes():
    """A probe of the head costs 4.32 layers of Llama-3.2-1B; gates come with every layer."""
    shape = find_shape("llama-3.2-1b")
    spent = onto(MethodSpec("calm"), 4, shape).net(_counts(4, 10.0, 10.0, probe=10.0))["decode"]
    assert -spent == pytest.approx(4.32 / (16 + 4.32), abs=0.001)
    gated = onto(MethodSpec.parse("gateskip"), 4, shape)
    few = gated.net(_counts(4, 10.0, 10.0, **{"method.gates.0": 10.0}))["decode"]
    assert -few == pytest.approx(4 * 2048**2 / (16 * 60817408 + 262668288), rel=1e-6)


class Narrow(GateSkip):
    """Cannot be built for a wide model."""

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        if backbone.hidden_size > 1000:
            raise RuntimeError("too wide for me")


def test_the_projection_stands_beside_the_measured_savings_where_there_can_be_one(
    monkeypatch, shared_model, random_text
):
    """Not for a method that cannot be built there, which loses nothing else."""
    monkeypatch.setitem(registry._registered, ("methods", "narrow"), (Narrow, "this test"))
    report = measured(shared_model("gateskip"), random_text)
    before = Evaluation("t", 0.1, {"acc,none": 0.5}, 4, report["saved"], report, 1.0, 10, 0, 4, 0, 1234)
    (after,), problems = projected(MethodSpec("gateskip"), [before], "llama-3.1-8b")
    assert problems == []
    assert after.projected_shape == "llama-3.1-8b" and set(after.projected) == {"all", "prefill", "decode"}
    assert replace(after, projected=None, projected_shape=None) == before
    assert projected(MethodSpec("dense"), [], "llama-3.2-1b") == ([], [])
    found, (problem,) = projected(MethodSpec("narrow"), [before], "llama-3.2-1b")
    assert found == [before] and "narrow" in problem and "too wide for me" in problem
