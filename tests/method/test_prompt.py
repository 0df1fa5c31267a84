"""A decision per prompt: what is pooled, when it is made, and that every way of running a text comes to the same."""

import pytest
import torch

from adaptive_bench.backbone import Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method.call import last_true
from adaptive_bench.method.site_view import window_means, window_numbers

LAYERS, WIDTH, PROMPT, LENGTH = 4, 32, 6, 14


@pytest.fixture
def model(shared_model):
    made = shared_model("prompt_router")
    made.dial = made.method.dial_for(0.3)
    return made


@pytest.fixture
def text(random_text):
    """Four rows of one length, and who follows the prompt."""
    return random_text(4, LENGTH), torch.arange(LENGTH).expand(4, -1) >= PROMPT


def kept(model, **arguments):
    """[L, B, S] who executes each layer in a call."""
    found = []
    listen = lambda view, decision: found.append(  # noqa: E731
        torch.ones_like(view.call.valid) if decision.keep is None else decision.keep
    )
    model.method.listeners.append(listen)
    try:
        with torch.no_grad():
            output = model(**arguments)
    finally:
        model.method.listeners.remove(listen)
    return torch.stack(found), output


def test_windows_of_a_prompt():
    """T-DR1: of 19 tokens and 8 windows each has 2, and the last 3 are unread; 5 tokens are 5 windows of 1."""
    context = torch.arange(22).expand(2, -1) >= torch.tensor([[3], [17]])
    windows = window_numbers(context, 8)
    assert windows[0].tolist() == [-1] * 3 + [place // 2 for place in range(16)] + [-1] * 3
    assert windows[1].tolist() == [-1] * 17 + [0, 1, 2, 3, 4]
    assert window_numbers(context, 1)[1].tolist() == [-1] * 17 + [0] * 5
    states = torch.arange(22.0).expand(2, -1)[..., None]
    means, filled = window_means(states, windows, 8)
    assert means[0, :, 0].tolist() == [3.5 + 2 * place for place in range(8)] and bool(filled[0].all())
    assert means[1, :5, 0].tolist() == [17, 18, 19, 20, 21] and filled[1].tolist() == [True] * 5 + [False] * 3
    assert last_true(context).tolist() == [21, 21]


@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_what_follows_a_prompt_has_no_say(model, text, executor):
    """Where a text is scored its context alone is pooled: other continuations, or none, leave the decisions."""
    ids, follows = text
    model.executor = executor
    keep, _ = kept(model, input_ids=ids, continuation_mask=follows)
    other = torch.where(follows, ids.flip(0), ids)
    assert torch.equal(kept(model, input_ids=other, continuation_mask=follows)[0], keep)
    short = slice(None, PROMPT + 1)
    found, _ = kept(model, input_ids=ids[:, short], continuation_mask=follows[:, short])
    assert torch.equal(found[..., -1], keep[..., PROMPT]) and bool(keep[..., :PROMPT].all())
    assert 0 < float(keep[..., PROMPT:].float().mean()) < 1
    changed = torch.where(follows, ids, ids.flip(0))
    assert not torch.equal(kept(model, input_ids=changed, continuation_mask=follows)[0], keep)


@pytest.mark.parametrize("executor", ["masked", "packed"])
def test_each_row_takes_its_own_path_and_keeps_it(model, text, executor):
    """T-DR5, T-DR6, T-FI2: as if it were alone, read at once, in parts or token by token, padded or not."""
    ids, follows = text
    model.executor = executor
    keep, whole = kept(model, input_ids=ids, continuation_mask=follows)
    paths = keep[..., PROMPT]
    assert torch.equal(keep[..., PROMPT:], paths[..., None].expand(-1, -1, LENGTH - PROMPT))
    assert len({tuple(path) for path in paths.T.tolist()}) > 1
    for row in range(len(ids)):
        alone = {"input_ids": ids[row : row + 1], "continuation_mask": follows[row : row + 1]}
        assert torch.equal(kept(model, **alone)[0][:, 0], keep[:, row])
    padded = torch.cat([torch.zeros_like(ids[:, :3]), ids], dim=1)
    mask = torch.arange(LENGTH + 3).expand_as(padded) >= 3
    later = torch.cat([torch.zeros_like(follows[:, :3]), follows], dim=1)
    found, _ = kept(model, input_ids=padded, attention_mask=mask, continuation_mask=later)
    assert torch.equal(found[..., 3:], keep)
    _, output = kept(model, input_ids=ids[:, :PROMPT], use_cache=True)
    logits, masks = [output.logits], []
    for start, end in ((PROMPT, PROMPT + 3), *((at, at + 1) for at in range(PROMPT + 3, LENGTH))):
        cache = {"past_key_values": output.past_key_values, "use_cache": True}
        one, output = kept(model, input_ids=ids[:, start:end], **cache)
        masks.append(one)
        logits.append(output.logits)
    assert torch.equal(torch.cat(masks, dim=-1), keep[..., PROMPT:])
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_prompts_are_those_of_the_base(model, text):
    """T-FI1: bit for bit, whatever the dial; the dial may be turned after the prompt was read."""
    ids, follows = text
    found = model(ids[:, :PROMPT], use_cache=True)
    assert torch.equal(found.logits, model.backbone_model(ids[:, :PROMPT]).logits)
    wanted = model(ids, continuation_mask=follows).logits[:, PROMPT:]
    dial, model.dial = model.dial, model.method.dial.skip_nothing
    cache = model(ids[:, :PROMPT], use_cache=True).past_key_values
    model.dial = dial
    torch.testing.assert_close(model(ids[:, PROMPT:], past_key_values=cache).logits, wanted, atol=1e-4, rtol=1e-4)


def test_a_text_without_a_prompt_is_decided_on_by_its_first_token(model, text):
    ids, follows = text
    keep, _ = kept(model, input_ids=ids, continuation_mask=torch.ones_like(follows))
    one, _ = kept(model, input_ids=ids, continuation_mask=torch.arange(LENGTH).expand_as(ids) >= 1)
    assert torch.equal(keep, one) and bool(keep[..., 0].all()) and not bool(keep.all())


@torch.no_grad()
def test_a_prompt_in_two_calls_is_refused(model, text):
    ids, follows = text
    cache = model(ids[:, :3], use_cache=True).past_key_values
    with pytest.raises(UsageError, match="needs the whole prompt in one call"):
        model(ids[:, 3:], past_key_values=cache, continuation_mask=follows[:, 3:])


@torch.no_grad()
def test_a_decision_is_paid_for_once(model, text):
    """2 H MACs a prompt and layer, whatever stands behind a row; nothing where an answer is written."""
    ids, follows = text
    for executor in ("masked", "packed"):
        model.executor = executor
        for requests, count in ((None, 4), ([3, 1, 1, 1], 6)):
            model.reset_ledger()
            model(ids, continuation_mask=follows, requests=requests)
            assert model.compute_report()["macs"]["overhead.decision"] == count * LAYERS * 2 * WIDTH
    cache = model(ids[:, :PROMPT], use_cache=True).past_key_values
    model.reset_ledger()
    model(ids[:, PROMPT:], past_key_values=cache, use_cache=True)
    macs = model.compute_report()["macs"]
    assert macs["overhead.decision"] == 0 and macs["overhead.kv_repair"] == 0


@torch.no_grad()
def test_a_network_runs_once_for_each_window(make_model, make_backbone, text, monkeypatch):
    """A mean over windows, each booked; a prompt of fewer tokens than windows has fewer of them."""
    from adaptive_bench.methods import prompt_router

    monkeypatch.setattr(prompt_router, "SEARCH_WINDOWS", 4)
    model = make_model("prompt_router[labels=search]", backbone=make_backbone("llama"))
    router = model.method.routers[0]
    ids, _ = text
    mask = torch.arange(LENGTH).expand_as(ids) >= torch.tensor([[0], [3], [11], [12]])
    model.reset_ledger()
    session = model(ids, mask, use_cache=True).past_key_values.session
    assert model.compute_report()["macs"]["overhead.decision"] == LAYERS * (4 + 4 + 3 + 2) * 128 * (WIDTH + 2)
    embedded = model.backbone.embed(ids)
    embedded = embedded / embedded.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()  # tokens of one length
    for row, places in enumerate(([range(0, 3), range(3, 6), range(6, 9), range(9, 12)], None, [[11], [12], [13]])):
        if places is not None:
            means = torch.stack([embedded[row, list(place)].mean(dim=0) for place in places])
            found = session.state[f"prompt_{Site(0, 'layer').number}"][row]
            torch.testing.assert_close(found, router(means).mean(dim=0), atol=1e-5, rtol=1e-5)
