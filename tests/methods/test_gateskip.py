"""GateSkip: gates, their place, what they decide at inference, its training and its ablation axes."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.methods.gateskip import sparsity
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


# GateSkip's training: schedule, skipping, penalty, gradients.


def test_training_drops_a_share_of_each_sequence(trainee, training_batch, watch):
    """G17, G21, X9: at every branch the share of a sequence's prompt and of its answer, whatever the dial says and
    whoever shares the batch; nothing at step 1.
    """
    model = trainee("gateskip")
    ids, mask, labels = training_batch
    model.dial = 0.05
    real, continuation = mask.bool(), labels != -100
    for step, share in ((1, 0.0), (8, 0.1), (15, 0.2), (21, 0.2)):
        model.begin_step(step, 21)
        with watch(model) as watched:
            for rows in (slice(None), slice(1)):
                model(ids[rows], mask[rows], labels=labels[rows], continuation_mask=continuation[rows])
        for together, alone in watched.keep.values():
            assert torch.equal(alone, together[:1])
            for phase in (real & ~continuation, real & continuation):
                assert ((phase & ~together).sum(-1) - share * phase.sum(-1)).abs().max() < (1 if share else 1e-9)
        assert len(watched.keep) == 8


@pytest.mark.parametrize(("loss", "value"), [("l2", 0.25), ("l1", 0.5), ("kl_layer", 0.0), ("kl_element", 0.0)])
def test_penalty_by_hand(loss, value):
    """T-GS8, golden: a constant gate of 0.5 gives 0.25 (mean square), 0.5 (mean), 0 (either KL at target 0.5)."""
    assert sparsity(torch.full((3, 4), 0.5), loss, 0.5).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("loss", "weight"), [("l1", 0.1), ("l2", 1.0), ("kl_layer", 0.1), ("kl_element", 1.0)])
def test_penalty_and_weight_are_a_pair(loss, weight, trainee, training_batch):
    """Section 3.3: lambda 0.1 belongs to the paper's forms, 1.0 to the released code's; one that is given wins."""
    ids, mask, labels = training_batch
    for spec, wanted in ((f"gateskip[loss={loss}]", weight), (f"gateskip[loss={loss},sparsity_weight=0.3]", 0.3)):
        model = trainee(spec, step=5)
        total = model(ids, mask, labels=labels).loss.item()
        terms = model.loss_terms
        assert total - terms["ce"] == pytest.approx(wanted * terms["sparsity"], abs=1e-5)


def test_kl_forms_differ():
    """Section 3.4: the element-wise KL also punishes variance around the right mean; the paper's does not."""
    gate = torch.tensor([[0.2, 0.8], [0.3, 0.7]])
    assert sparsity(gate, "kl_layer", 0.5).item() == pytest.approx(0.0, abs=1e-6)
    assert sparsity(gate, "kl_element", 0.5).item() > 0.1


@pytest.mark.parametrize(("detach", "reaches"), [("true", False), ("false", True)])
def test_gradient_through_the_gate_input(detach, reaches, trainee, training_batch):
    """T-GS9: with detach the penalty trains the gates only; without it the backbone feels it."""
    model = trainee(f"gateskip[detach={detach}]")
    ids, mask, labels = training_batch
    total = model(ids, mask, labels=labels).loss
    # the penalty alone: what is left of the loss without its cross entropy
    plain = trainee(f"gateskip[detach={detach},sparsity_weight=0]")(ids, mask, labels=labels).loss
    assert total.item() - plain.item() == pytest.approx(model.loss_terms["sparsity"], abs=1e-5)
    call = {}
    losses = model.method.losses
    model.method.losses = lambda passed: call.setdefault("terms", losses(passed))
    model(ids, mask, labels=labels)
    model.zero_grad()
    call["terms"]["sparsity"][1].backward()
    assert all(gate.weight.grad.abs().max() > 0 for gate in model.method.gates)
    touched = [
        parameter
        for parameter in model.backbone_model.parameters()
        if parameter.grad is not None and parameter.grad.any()
    ]
    assert bool(touched) == reaches


def test_skipped_tokens_keep_their_kv_in_training(trainee, training_batch):
    """G18: training skips by identity only; K,V stay, whatever the KV policy at inference will be."""
    ids, mask, _ = training_batch
    with torch.no_grad():
        logits = [trainee(f"gateskip[kv={kv}]")(ids, mask).logits for kv in ("recompute", "copy_below", "evict")]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


# GateSkip's ablation axes: each changes what it says, and nothing else.


LAYERS = 4


@torch.no_grad()
@pytest.mark.parametrize("phase", ["training", "bench", "paper"])
def test_layer_by_attention(trainee, make_model, random_text, watch, phase):
    """T-GS12: attention and MLP of a layer have identical masks, in training and in both semantics."""
    spec = "gateskip[skip_unit=layer]" + ("@paper" if phase == "paper" else "")
    model = trainee(spec) if phase == "training" else make_model(spec)
    model.dial = model.method.dial_for(0.3)
    with watch(model) as watched:
        model(random_text(4, 16))
    for layer in range(LAYERS):
        attention, mlp = (watched.keep[Site(layer, branch)][0] for branch in ("attention", "mlp"))
        assert torch.equal(attention, mlp)
        assert 0 < float(attention.float().mean()) < 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("axis", "skipping"),
    [
        ("skip_modules=attention", {Site(layer, "attention") for layer in range(4)}),
        ("skip_modules=mlp", {Site(layer, "mlp") for layer in range(4)}),
        ("stride=2", {Site(layer, branch) for layer in (1, 3) for branch in ("attention", "mlp")}),
        ("stride=4,skip_unit=layer", {Site(3, branch) for branch in ("attention", "mlp")}),
        ("stride=2,skip_modules=mlp", {Site(1, "mlp"), Site(3, "mlp")}),
    ],
)
def test_who_may_skip(shared_model, random_text, axis, skipping):
    """G15, G16: only these branches skip; the rest executes, still gated; the dial counts all branches."""
    model = shared_model(f"gateskip[{axis}]")
    share = len(skipping) / (2 * LAYERS)
    model.dial = model.method.dial_for(0.45 * share)
    assert model.dial == pytest.approx(0.55)
    assert model.method.max_saved_tokens == pytest.approx(0.95 * share)
    model(random_text(8, 24))
    sites = model.compute_report()["sites"]
    assert {Site(one["layer"], one["branch"]) for one in sites if one["executed"] < 1} == skipping
    assert model.compute_report()["macs"]["overhead.decision"] == 2 * LAYERS * 8 * 24 * 32**2  # everybody is gated


@torch.no_grad()
@pytest.mark.parametrize(
    ("axis", "output", "inputs"),
    [
        ("placement=after", True, False),
        ("placement=before", False, True),
        ("placement=both", True, True),
        ("input=residual", True, False),
    ],
)
def test_placement(shared_model, random_text, watch, axis, output, inputs):
    """G14, G1: the gate multiplies the branch's output, its input alone, or both (released code of 'before'); it reads
    what the branch reads, or the residual stream as it is.
    """
    model = shared_model(f"gateskip[{axis}]")
    with watch(model) as watched:
        model(random_text(2, 8))
    site, layer = Site(0, "mlp"), model.backbone_model.model.layers[0]
    decision, hidden = watched.decisions[site][0], watched.hidden[site][0]
    assert (decision.scale is not None, decision.input_scale is not None) == (output, inputs)
    normed = layer.post_attention_layernorm(hidden)
    gate = torch.sigmoid(model.method.gates[1](hidden if axis == "input=residual" else normed))
    expected = layer.mlp(normed * gate if inputs else normed) * (gate if output else 1)
    after = watched.hidden[Site(1, "attention")][0]
    torch.testing.assert_close(after - hidden, expected, atol=1e-4, rtol=1e-4)
