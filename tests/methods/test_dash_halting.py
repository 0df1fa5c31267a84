"""DASH against its rule: who is halted, where, and that nothing of it reaches what is written."""

import pytest
import torch

from adaptive_bench.backbone import Site

LAYERS, LENGTH, PROMPT, START = 4, 14, 10, 1
ABOVE = [Site(layer, branch) for layer in (2, 3) for branch in ("attention", "mlp")]


@pytest.fixture
def text(random_text):
    return random_text(3, LENGTH), torch.arange(LENGTH).expand(3, -1) >= PROMPT


@torch.no_grad()
@pytest.mark.parametrize("executor", ["masked", "packed"])
@pytest.mark.parametrize("spec", ["dash_halting", "dash_halting@paper"])
def test_who_goes_on(make_model, text, watch, spec, executor):
    """T-DH1, T-DH2: the same tokens in every layer above; K = floor((1 - rho) S) of a prompt in `paper`, those whose
    update is above one threshold in `bench`; all of them those with the largest updates, and the last one.
    """
    model, (ids, follows) = make_model(spec), text
    model.executor, model.dial = executor, 0.55
    with watch(model) as watched:
        model(ids, continuation_mask=follows)
    keep = watched.keep[ABOVE[0]][0]
    assert all(torch.equal(watched.keep[site][0], keep) for site in ABOVE)
    assert all(bool(watched.keep[Site(layer, "mlp")][0].all()) for layer in range(START + 1))
    assert bool(keep[:, PROMPT - 1 :].all())
    update = watched.hidden[Site(START, "mlp")][0] - watched.hidden[Site(START, "attention")][0]
    norms = update.norm(dim=-1)[:, : PROMPT - 1]
    inside = keep[:, : PROMPT - 1]
    if spec.endswith("paper"):
        assert inside.sum(dim=1).tolist() == [int(0.45 * PROMPT) - 1] * 3
        for row in range(3):
            assert float(norms[row][inside[row]].min()) > float(norms[row][~inside[row]].max())
    else:
        assert float(norms[inside].min()) > float(norms[~inside].max())
        quantiles = model.method.fitted["norms"]
        assert float(norms[~inside].max()) < float(quantiles[110]) <= float(norms[inside].min())


@torch.no_grad()
def test_a_token_that_attention_leaves_alone_is_halted_first(make_model, text, watch):
    """T-DH3."""
    model, (ids, follows) = make_model("dash_halting@paper"), text
    attention, quiet = model.backbone_model.model.layers[START].self_attn, 4
    handle = attention.register_forward_hook(
        lambda _, inputs, output: (output[0].index_fill(1, torch.tensor(quiet), 0), output[1])
    )
    model.executor, model.dial = "masked", 0.1
    with handle, watch(model) as watched:
        model(ids, continuation_mask=follows)
    halted = ~list(watched.keep.values())[-1][0]
    assert bool(halted[:, quiet].all()) and int(halted.sum()) == len(ids)


@torch.no_grad()
@pytest.mark.parametrize("spec", ["dash_halting", "dash_halting@paper"])
def test_decoding_saves_nothing(make_model, text, spec):
    """T-DH4: it runs every layer, on the keys and values of the tokens that went on; scoring is the same."""
    model, (ids, follows) = make_model(spec), text
    model.dial = 0.6
    model.reset_ledger()
    output = model(ids[:, :PROMPT], use_cache=True)
    logits = [output.logits]
    for at in range(PROMPT, LENGTH):
        output = model(ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True)
        logits.append(output.logits)
    report = model.compute_report()
    assert report["decode"]["tokens"] == 0.0 < report["prefill"]["tokens"]
    cache = output.past_key_values
    assert cache.store(LAYERS - 1).table.used < cache.store(START).table.used == LENGTH
    whole = model(ids, continuation_mask=follows).logits
    torch.testing.assert_close(torch.cat(logits, dim=1), whole, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("spec", ["dash_halting", "dash_halting@paper"])
def test_halting_nobody_is_the_base(make_model, text, spec):
    """T-DH5: and costs nothing; at any other value a norm costs H MACs for each prompt token but the last."""
    model, (ids, follows) = make_model(spec), text
    model.dial = 0.0
    model.reset_ledger()
    assert torch.equal(model(ids, continuation_mask=follows).logits, model.backbone_model(ids).logits)
    assert model.compute_report()["macs"]["overhead.decision"] == 0
    model.dial = 0.3
    model.reset_ledger()
    model(ids, continuation_mask=follows, requests=[2, 1, 1])
    assert model.compute_report()["macs"]["overhead.decision"] == 4 * (PROMPT - 1) * 32


@torch.no_grad()
def test_the_threshold_is_a_quantile_of_those_who_may_be_halted(make_model, make_backbone, random_text):
    """Of the norms of what attention puts out for prompt tokens but the last, on plain Hugging Face; answers, which run
    every layer, have no part in it. A text without prompts gives what it has.
    """
    model, plain, norms = make_model("dash_halting"), make_backbone("llama"), []
    hook = plain.model.layers[START].self_attn.register_forward_hook(
        lambda _, inputs, output: norms.append(output[0].double().norm(dim=-1))
    )
    ids, lengths = random_text(6, 30), torch.tensor([[30], [24], [17], [30], [30], [9]])
    mask, follows = torch.arange(30) < lengths, torch.arange(30) >= torch.tensor([[12], [3], [17], [1], [29], [4]])
    plain(ids, attention_mask=mask)
    hook.remove()
    asked = {"input_ids": ids, "attention_mask": mask}
    model.calibrate([asked | {"continuation_mask": follows}], [0.3])
    may_halt = mask[:, 1:] & ~follows[:, 1:]  # the next one is of the prompt too
    wanted = torch.quantile(norms[0][:, :-1][may_halt], torch.linspace(0, 1, 201).double())
    torch.testing.assert_close(model.method.fitted["norms"], wanted, atol=1e-5, rtol=1e-5)
    model.calibrate([asked | {"continuation_mask": torch.ones_like(follows)}], [0.3])
    wanted = torch.quantile(norms[0][mask], torch.linspace(0, 1, 201).double())
    torch.testing.assert_close(model.method.fitted["norms"], wanted, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_text_without_a_prompt_halts_nobody(make_model, text):
    model, (ids, follows) = make_model("dash_halting"), text
    model.dial = 0.9
    model.reset_ledger()
    assert torch.equal(model(ids, continuation_mask=torch.ones_like(follows)).logits, model.backbone_model(ids).logits)
    assert model.compute_report()["saved"]["tokens"] == 0.0
