"""What tokens that skip a branch get instead of it. `test_random_patterns` holds the executors to the definition."""

from unittest import mock

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.engine.engine_call import EngineCall
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import Decision

LAYERS, LENGTH, WIDTH = 4, 12, 32


@pytest.fixture
def ids(random_text):
    return random_text(3, LENGTH)


@pytest.fixture
def patterned(make_backbone, make_pattern, run_pattern):
    """`patterned(**pattern)`: a model with a random table, its pattern, and something for tokens that skip."""

    def make(attention="sdpa", **pattern):
        made = make_pattern(3, LENGTH, LAYERS, **({"instead": WIDTH} | pattern))
        return run_pattern(make_backbone("llama", attention), made), made

    return make


def changed(model, change):
    """The model's method answers what `change` makes of its decisions."""
    decide = type(model.method).decide
    model.method.decide = lambda view: change(view, decide(model.method, view))


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_nothing_given_changes_no_number(patterned, ids, executor):
    """A function that gives zeros is the method without one, bit for bit, in logits and books."""
    found = []
    for otherwise in (None, lambda tokens: torch.zeros(len(tokens), WIDTH)):
        model, _ = patterned(instead=0)
        model.executor = executor
        changed(model, lambda view, decision, to=otherwise: Decision(decision.keep, decision.scale, otherwise=to))
        output = model(ids[:, :-1], use_cache=True)
        step = model(ids[:, -1:], past_key_values=output.past_key_values)
        found.append((output.logits, step.logits, model.compute_report()))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


@torch.no_grad()
@pytest.mark.parametrize("kv", ["recompute", "copy_below", "evict"])
def test_it_is_asked_for_tokens_that_skip_alone(patterned, ids, kv):
    """Padding is asked for nowhere; where nobody is kept, only this runs of the branch."""
    mask = torch.arange(LENGTH).expand(3, LENGTH) >= torch.tensor([[0], [4], [7]])
    model, asked = patterned(kv=kv, share=0.5)[0], []

    def noting(view, decision):
        skipped = (~decision.keep & view.call.valid).flatten().nonzero()[:, 0].tolist()

        def otherwise(tokens):
            asked.append(tokens.tolist() == skipped)
            return decision.otherwise(tokens)

        return Decision(decision.keep, decision.scale, decision.input_scale, otherwise)

    changed(model, noting)
    model(ids, mask)
    assert len(asked) == 2 * LAYERS and all(asked)

    model = patterned(kv=kv, share=0.0)[0]
    layer = model.backbone_model.model.layers[0]
    with mock.patch.object(layer.mlp, "forward", side_effect=AssertionError("the branch ran")):
        model(ids)
    assert model.compute_report()["saved"]["tokens"] == 1.0


@torch.no_grad()
@pytest.mark.parametrize("kv", ["recompute", "copy_below", "evict"])
@pytest.mark.parametrize("unit", ["branch", "layer"])
def test_its_products_are_booked_for_tokens_that_skip(patterned, ids, unit, kv):
    """One map per skipped token, in `overhead.adapter`; what is run for others is waste, and nothing is left out."""
    mask = torch.arange(LENGTH).expand(3, LENGTH) >= torch.tensor([[0], [4], [7]])
    adapter = []
    for executor, fixed in (("packed", False), ("packed", True), ("masked", False)):
        model, pattern = patterned("eager", unit=unit, kv=kv)
        model.executor = executor
        fixed_shapes = property(lambda call, fixed=fixed: fixed and call.decodes)
        with mock.patch.object(EngineCall, "fixed_shapes", fixed_shapes), FlopCounterMode(display=False) as counter:
            output = model(ids[:, :-1], mask[:, :-1], use_cache=True)
            model(ids[:, -1:], past_key_values=output.past_key_values)
        assert 2 * model.ledger.total_macs() == pytest.approx(counter.get_total_flops(), rel=1e-3)
        # rows are padded on the left, so the pattern's columns are positions from each row's first real token
        skips = [~pattern.keep[row, :, : int(mask[row].sum())] for row in range(3)]
        count = sum(int(row[:: 2 if unit == "layer" else 1].sum()) for row in skips)
        adapter.append(model.compute_report()["macs"]["overhead.adapter"])
        assert adapter[-1] == count * WIDTH**2
    assert len(set(adapter)) == 1


@torch.no_grad()
def test_weights_are_read_where_somebody_skips(patterned, ids):
    reports = []
    for instead in (0, WIDTH):
        model, _ = patterned(instead=instead, share=0.5)
        model(ids)
        reports.append(model.ledger.weight_bytes("prefill"))
    assert reports[1] - reports[0] == 2 * LAYERS * 4 * WIDTH**2


@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_gradients_flow_through_it(patterned, ids, executor):
    """To its own weights, and through what it reads to everything below."""
    model, _ = patterned(share=0.5)
    model.train()
    model.executor = executor
    model(ids).logits.square().mean().backward()
    assert all(float(linear.weight.grad.abs().sum()) > 0 for linear in model.method.instead)
    assert float(model.backbone_model.model.embed_tokens.weight.grad.abs().sum()) > 0


def test_a_soft_choice_has_a_gradient_on_both_sides(patterned, ids):
    """h + e f + (1 - e) g: forward the hard choice, backward d h / d e = f - g for every token."""
    hard, soft = patterned(unit="branch", scaled=False)[0], patterned(unit="branch", scaled=False)[0]
    choices = []

    def both(view, decision):
        chosen = decision.keep.float().requires_grad_()
        choices.append(chosen)
        share = (1 - chosen).flatten()[:, None]
        return Decision(scale=chosen[..., None], otherwise=lambda at: share[at] * decision.otherwise(at))

    hard.train(), soft.train()
    changed(soft, both)
    mask = torch.arange(LENGTH).expand(3, LENGTH) >= torch.tensor([[0], [4], [7]])
    logits = soft(ids, mask).logits
    torch.testing.assert_close(logits[mask], hard(ids, mask).logits[mask], atol=1e-5, rtol=1e-5)
    logits[mask].square().sum().backward()
    for choice in choices:
        assert bool(((choice.grad != 0) == mask).all())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda view, one: Decision(one.keep, otherwise=lambda at: one.otherwise(at)[:1]), r"of shape \(\d+, 32\)"),
        (lambda view, one: Decision(one.keep, otherwise=lambda at: None), "got NoneType"),
    ],
)
@torch.no_grad()
def test_what_is_none_is_refused(patterned, ids, wrong, said):
    model, _ = patterned()
    changed(model, wrong)
    with pytest.raises(PluginFault, match=said):
        model(ids)


@torch.no_grad()
def test_tokens_that_wait_get_nothing(patterned, ids):
    model, _ = patterned(kv="defer", unit="layer")
    with (
        pytest.raises(UsageError, match="under which they wait"),
        mock.patch.object(type(model.method), "defer_layer", 2),
    ):
        model(ids)
