"""What training gives every method: honest losses, a schedule that moves with the steps (X16, X18)."""

import pytest
import torch

SPECS = [
    "dense",
    "random_skip",
    "random_skip[trained=true]",
    "gateskip",
    "gateskip[shape=scalar,sharing=shared,loss=l1,input=residual,detach=false]",
    "gateskip@paper",
    "mod",
    "mod[capacity=0.5,every=1]@paper",
    "skipgpt[sparsity=0.4]",
]
LEARNERS = {  # by the cross entropy alone, where nothing else is said
    "skiplayer[density_weight=0]": "",
    "flexidepth[alpha=0]": "method.",
    "flexidepth[alpha=0,factors=straight_through]": "method.",
    "skipgpt[penalty_weight=0]": "method.routers.",
    "router_tuned_mod": "method.routers.",
    "prompt_router[labels=search,simulations=6]": "method.routers.",
    "calm[confidence=classifier]": "method.",
    "calm[confidence=convergence,converged_at=0.5]": "method.",
    "gateskip[frozen=true]": "method.gates.",
}


@pytest.mark.parametrize("spec", SPECS)
def test_loss_terms(spec, trainee, training_batch):
    """X16: the loss is cross entropy plus weighted terms; the raw values are told; padding changes none of them, save
    the penalty of GateSkip's released code, a mean over padding too.
    """
    model = trainee(spec)
    ids, mask, labels = training_batch
    weights = {"sparsity": 0.1 if "loss=l1" in spec else 1.0, "target": 20.0}
    with torch.no_grad():
        if spec.startswith("skipgpt"):
            for router in model.method.routers:  # sampled choices that fall to both sides
                router.bias.zero_()
        loss = model(ids, mask, labels=labels).loss.item()
        terms = dict(model.loss_terms)
        assert loss == pytest.approx(sum(weights.get(name, 1.0) * value for name, value in terms.items()), rel=1e-5)
        more = torch.nn.functional.pad(ids, (0, 4)), torch.nn.functional.pad(mask, (0, 4))
        model(*more, labels=torch.nn.functional.pad(labels, (0, 4), value=-100))
    again = dict(model.loss_terms)
    if spec == "gateskip@paper":
        assert again.pop("sparsity") != pytest.approx(terms.pop("sparsity"), rel=1e-4)
    assert again == pytest.approx(terms, rel=1e-4)


@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_labels_in_evaluation(spec, shared_model, random_text):
    """As in Hugging Face, labels in `eval()` give the cross entropy of the logits, and nothing else."""
    model, ids = shared_model(spec), random_text(2, 9)
    output = model(ids, labels=ids)
    wanted = torch.nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(output.loss, wanted)
    assert set(model.loss_terms) == {"ce"}


@pytest.mark.parametrize("spec", ["gateskip", "mod", "random_skip[trained=true]"])
def test_training_in_bf16_autocast(spec, trainee, training_batch):
    """X18: under autocast the loss stays finite and the decisions do not depend on bf16 scores."""
    ids, mask, labels = training_batch
    model = trainee(spec)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, mask, labels=labels).loss
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("spec", LEARNERS)
def test_who_learns(spec, trainee, training_batch):
    """Every parameter that is to be trained gets a gradient, through hard choices and both paths too; no other does."""
    model = trainee(spec)
    ids, mask, labels = training_batch
    model(ids, mask, labels=labels, continuation_mask=(labels != -100) & mask).loss.backward()
    named = dict(model.named_parameters())
    wanted = {name for name in named if name.startswith(LEARNERS[spec])}
    assert {name for name, value in named.items() if value.requires_grad} == wanted
    assert {name for name, value in named.items() if value.grad is not None and bool(value.grad.any())} == wanted
    grouped = [parameter for group in model.parameter_groups(1e-3) for parameter in group["params"]]
    assert {id(one) for one in grouped} == {id(named[name]) for name in wanted}


@pytest.mark.parametrize(
    ("spec", "start", "end"),
    [
        ("gateskip", 0.0, 0.2),
        ("gateskip[budget_start=0.9,budget_end=0.5]", 0.1, 0.5),
        ("mod[capacity=0.3]", 0.0, 0.7),
        ("random_skip[trained=true]", 0.0, 0.2),
    ],
)
def test_skipping_rises_over_seven_tenths_of_the_training(spec, start, end, trainee):
    """T-GS10, golden: in equal steps, then held; a training of one step begins."""
    model, found = trainee(spec), []
    for step in range(1, 12):
        model.begin_step(step, 11)
        found.append(model.method.skip_share)
    assert found == pytest.approx([start + (end - start) * min(1.0, step / 7) for step in range(11)])
    model.begin_step(1, 1)
    assert model.method.skip_share == pytest.approx(start)
