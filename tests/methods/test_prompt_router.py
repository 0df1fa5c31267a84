"""The prompt router against its formulas: routers over mean states, a choice per row, a penalty over all tokens."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.methods.branch_routers import EXECUTE, SKIP
from adaptive_bench.methods.path_search import shortest_right_paths
from adaptive_bench.methods.prompt_router import answered_right, class_weights, focal, focal_loss
from adaptive_bench.model.generation import new_tokens

LAYERS, PROMPT, LENGTH = 4, 5, 12


@torch.no_grad()
def test_routers_read_the_mean_of_the_prompt(make_model, make_backbone, ids, watch):
    """Of the residual stream before the layer, its tokens of one length; the dial's offset is on the execute logit."""
    model = make_model("prompt_router", backbone=make_backbone("llama"))
    follows = torch.arange(LENGTH).expand_as(ids) >= PROMPT
    for model.dial in (-0.4, 0.0, 0.7):
        with watch(model) as watched:
            model(ids, continuation_mask=follows)
        for layer, router in enumerate(model.method.routers):
            prompt = watched.hidden[Site(layer, "layer")][0][:, :PROMPT]
            logits = router((prompt / prompt.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()).mean(dim=1))
            runs = logits[:, EXECUTE] + model.dial >= logits[:, SKIP]
            keep = watched.keep[Site(layer, "layer")][0]
            assert bool(keep[:, :PROMPT].all()) and torch.equal(keep[:, PROMPT:], runs[:, None].expand(-1, 7))


def test_penalty_of_a_call(trainee, training_batch, watch):
    """|(1 - s) - mean over layers of the executed share| of answers; one choice a row, prompts execute."""
    model = trainee("prompt_router[sparsity=0.4,penalty_weight=20]")
    ids, mask, labels = training_batch
    with torch.no_grad():
        for router in model.method.routers:
            router.bias.zero_()
    follows = (labels != -100) & mask
    with watch(model) as watched:
        loss = model(ids, mask, labels=labels, continuation_mask=follows).loss
    scales = torch.stack([watched.decisions[Site(layer, "layer")][0].scale[..., 0] for layer in range(LAYERS)])
    for row in range(len(ids)):
        inside = scales[:, row][:, follows[row]]
        assert torch.equal(inside, inside[:, :1].expand_as(inside))
    assert set(scales.detach().unique().tolist()) == {0.0, 1.0} and bool((scales[:, ~follows] == 1).all())
    distance = abs(0.6 - float(scales[:, follows].detach().mean()))
    assert model.loss_terms["target"] == pytest.approx(distance, abs=1e-6) and distance > 0.01
    assert float(loss.detach()) == pytest.approx(model.loss_terms["ce"] + 20 * distance, rel=1e-5)
    loss.backward()
    assert all(bool(router.weight.grad.any()) for router in model.method.routers)


@torch.no_grad()
def test_an_answer_skips_layers_as_if_they_were_not_there(make_model, make_backbone, ids, truncated):
    """Prompt at full depth, then the last two layers closed: the states after it are those of the layers below."""
    model = make_model("prompt_router", backbone=make_backbone("llama"))
    for layer, router in enumerate(model.method.routers):
        router.weight.zero_()
        router.bias.copy_(torch.tensor([1.0, -1.0] if (layer >= 2) == (EXECUTE == 1) else [-1.0, 1.0]))
    model.dial = 0.0
    cache = model(ids[:, :PROMPT], use_cache=True).past_key_values
    logits = model(ids[:, PROMPT:], past_key_values=cache, use_cache=True).logits
    short = truncated(model.backbone_model, 2)
    torch.testing.assert_close(logits, short(ids).logits[:, PROMPT:], atol=1e-4, rtol=1e-4)
    sites = model.compute_report()["counts"]["decode"]
    assert sites["executed"] == [[28, 28], [28, 28], [0, 0], [0, 0]]


def test_focal_loss_by_hand():
    """T-DR2: .008926 where the label has a probability of .8, .488272 where it has a third."""
    assert focal(torch.tensor([0.8, 1 / 3]).log()).tolist() == pytest.approx([0.008926, 0.488272], abs=1e-6)
    logits, labels = torch.tensor([[[2.0, 0.5], [0.1, 0.4]]]), torch.tensor([[EXECUTE, SKIP]])
    chosen = logits.softmax(dim=-1)[0, [0, 1], [0, 1]]
    wanted = -((1 - chosen) ** 2 * chosen.log()).mean()
    assert float(focal_loss(logits, labels)) == pytest.approx(float(wanted), rel=1e-5)  # one label of each


def test_weights_of_rare_labels():
    """T-DR3: of the counts in the released code; where labels are fewer, the rare ones weigh more."""
    weights = class_weights(torch.tensor([4399, 120956, 1457]))
    assert weights.tolist() == pytest.approx([0.9160, 0.9048, 1.1792], abs=1e-4)
    few = class_weights(torch.tensor([90, 10]))
    assert float(few[1] / few[0]) == pytest.approx(9.0, rel=0.05)


@pytest.mark.parametrize("wanted", [{0, 2}, {1, 2, 3}, set()])
def test_a_search_finds_the_fewest_layers(wanted):
    """An answer is right where some layers run, whatever the others do: those alone are kept in the end."""
    needed = torch.tensor([layer in wanted for layer in range(4)])
    tried = []

    def is_right(keep):
        tried.append(keep)
        return (keep | ~needed).all(dim=1)

    keep, found = shortest_right_paths(is_right, 4, [1, 2, 3], simulations=50)
    assert len(tried) == 50 and bool(tried[0].all()) and all(bool(one.any(dim=1).all()) for one in tried)
    assert bool(found.all()) and bool((keep | ~needed).all())
    assert keep.sum(dim=1).tolist() == [max(1, len(wanted))] * 3
    keep, found = shortest_right_paths(lambda keep: torch.zeros(len(keep), dtype=torch.bool), 4, [1, 2], simulations=9)
    assert bool(keep.all()) and not bool(found.any())


@torch.no_grad()
def test_an_answer_is_right_where_it_would_be_written(make_model, make_backbone, random_text):
    """Labels are what the model writes greedily if the prompt runs in full and the answer by its path."""
    model, paths = (
        make_model("prompt_router", backbone=make_backbone("llama")),
        torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]]),
    )
    prompts, rows = random_text(2, PROMPT), []
    for row, path in enumerate(paths.bool().tolist()):
        for router, runs in zip(model.method.routers, path, strict=True):
            router.weight.zero_()
            router.bias.copy_(torch.tensor([1.0, -1.0] if runs == (EXECUTE == 0) else [-1.0, 1.0]))
        model.dial = 0.0
        rows.append(prompts[row].tolist() + new_tokens(model, prompts[row : row + 1], max_new_tokens=6)[0])
    ids = torch.tensor(rows)
    labels = ids.clone()
    labels[:, :PROMPT] = -100
    model.train()
    model.begin_step(1, 10)
    found, losses = [], model.method.losses

    def ask(call):
        for paths_of_rows in (paths.bool(), paths.flip(0).bool()):
            found.append(answered_right(call, paths_of_rows).tolist())
        return losses(call)

    model.method.losses = ask
    model(ids, labels=labels, continuation_mask=labels != -100)
    # The first token of an answer is read off the prompt, which runs in full.
    assert found[0] == [True, True] and found[1] == [False, False]


def test_labels_of_a_search_stand_in_for_the_cross_entropy(trainee, training_batch):
    model = trainee("prompt_router[labels=search,simulations=6]")
    ids, mask, labels = training_batch
    loss = model(ids, mask, labels=labels, continuation_mask=(labels != -100) & mask).loss
    assert float(loss.detach()) == pytest.approx(model.loss_terms["labels"], rel=1e-6)
