"""GateSkip: gates, their place, and what they decide at inference."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.model import AdaptiveModel


def fill_gates(model, weight, bias):
    with torch.no_grad():
        for gate in model.method.gates:
            gate.weight.fill_(weight)
            gate.bias.fill_(bias)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@torch.no_grad()
def test_open_gates_are_the_base_model(family, make_model, shared_backbone, random_text):
    """T-GS1, X1: bias 40 and zero weights give gates of exactly 1: base logits, bit for bit."""
    model, ids = make_model("gateskip", family), random_text(2, 11)
    fill_gates(model, 0.0, 40.0)
    for model.executor in ("packed", "masked"):
        assert torch.equal(model(ids).logits, shared_backbone(family)(ids).logits)


@torch.no_grad()
def test_initial_gates(shared_backbone, random_text):
    """T-GS2: gates start near sigmoid(5) = 0.9933, so logits start close to the base model's, but not equal."""
    ids = random_text(2, 11)
    model = AdaptiveModel.build(shared_backbone("llama"), "gateskip").eval()
    weights = torch.cat([gate.weight.flatten() for gate in model.method.gates])
    assert weights.std().item() == pytest.approx(0.01, rel=0.05)
    assert {gate.bias.unique().item() for gate in model.method.gates} == {5.0}
    base = shared_backbone("llama")(ids).logits
    change = (model(ids).logits - base).abs()
    assert 0 < change.max() < 0.2 * base.std()
    fill_gates(model, 0.0, 5.0)
    gates = []
    for gate in model.method.gates:
        gate.register_forward_hook(lambda _, __, output: gates.append(torch.sigmoid(output)))
    model(ids)
    torch.testing.assert_close(torch.stack(gates), torch.full((8, 2, 11, 32), 0.9933071))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@torch.no_grad()
def test_a_scalar_gate_scales_the_residual_update(family, make_model, random_text, watch):
    """G13, G22: a gate of one half halves what a branch adds, behind Gemma's post-norm as well."""
    model, ids = make_model("gateskip[shape=scalar]", family), random_text(1, 6)
    fill_gates(model, 0.0, 40.0)
    with watch(model) as watched:
        for bias in (40.0, 0.0):  # of the attention gate of layer 0: a gate of 1, then of 1/2
            model.method.gates[0].bias.fill_(bias)
            model(ids)
    whole, half = (hidden - model.backbone.embed(ids) for hidden in watched.hidden[Site(0, "mlp")])
    torch.testing.assert_close(half, whole / 2, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_shared_gates(make_model, random_text, watch):
    """Methods.md 3.2: one gate for all attention branches, another for all MLPs."""
    model = make_model("gateskip[sharing=shared,shape=scalar]")
    model.method.gates[1].bias.fill_(-200.0)  # closes every MLP
    with watch(model) as watched:
        model(random_text(1, 9))
    for layer in range(3):
        assert torch.equal(watched.hidden[Site(layer, "mlp")][0], watched.hidden[Site(layer + 1, "attention")][0])


@torch.no_grad()
def test_budget_one(shared_model, random_text):
    """T-GS3, golden: nothing skips at budget 1, one token or many; to the letter of Algorithm 3 one per branch does."""
    for length in (1, 7):
        for spec, saved in (
            ("gateskip", 0.0),
            ("gateskip@paper", 0.0),
            ("gateskip[rule=text]@paper", 1 / length),
        ):
            model = shared_model(spec)
            model(random_text(1, length))
            assert model.compute_report()["saved"]["tokens"] == pytest.approx(saved)


@torch.no_grad()
def test_equal_scores(make_model, random_text):
    """T-GS3, G5: equal scores skip nothing at budget 1 and an exact share below it; to the letter everything skips."""
    for spec, budget, saved in (
        *(("gateskip", 1.0, 0.0), ("gateskip[rule=exact_share]@paper", 0.7, 3 / 12)),
        *(("gateskip@paper", 1.0, 0.0), ("gateskip@paper", 0.7, 1.0)),  # released code: score <= a quantile of its like
        *(("gateskip[rule=text]@paper", budget, 1.0) for budget in (1.0, 0.7)),
    ):
        model = make_model(spec)
        fill_gates(model, 0.0, 5.0)
        model.dial = budget
        model(random_text(2, 6))
        assert model.compute_report()["saved"]["tokens"] == saved


@pytest.mark.parametrize(("rows", "skipped"), [(1, 0), (2, 0), (3, 1), (10, 4), (16, 6)])
@torch.no_grad()
def test_decoding_skips_a_share_of_the_unfinished_rows(rows, skipped, shared_model, random_text):
    """G3, G6, golden: at budget 0.6 exactly floor(0.4 n) of the n rows of a decoding call skip a branch; of 1, none."""
    model, ids = shared_model("gateskip[rule=exact_share]@paper"), random_text(rows, 9)
    output = model(ids[:, :8], use_cache=True)
    model.dial = 0.6
    model.reset_ledger()
    model(ids[:, 8:], past_key_values=output.past_key_values)
    assert model.compute_report()["decode"]["tokens"] == pytest.approx(skipped / rows)


@torch.no_grad()
def test_kv_policy_defaults(shared_model, random_text):
    """G12, R3: K,V of skipped tokens are recomputed, as the released code does, since its copy of those below never
    takes effect; the paper's text copies them; `kv` overrides both.
    """
    kinds = {"gateskip": "recompute", "gateskip@paper": "recompute", "gateskip[kv=evict]@paper": "evict"}
    kinds |= {"gateskip[rule=text]@paper": "copy_below", "gateskip[kv=recompute,rule=text]@paper": "recompute"}
    for spec, policy in kinds.items():
        model = shared_model(spec)
        assert model.method.kv_policy == policy
        assert model(random_text(1, 4), use_cache=True).past_key_values.policy == policy


def test_decisions_are_made_in_fp32(make_backbone, make_model, random_text):
    """G20, X18: gates read fp32 even on a bf16 backbone, so scores that differ by 1e-4 stay apart."""
    model = make_model("gateskip", backbone=make_backbone("llama").to(torch.bfloat16))
    seen = []
    for gate in model.method.gates:
        gate.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].dtype, output.dtype)))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model.executor = "masked"
        model(random_text(1, 4))
    assert set(seen) == {(torch.float32, torch.float32)}
