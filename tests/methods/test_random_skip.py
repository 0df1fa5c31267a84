"""Random skipping: counter-based draws that depend on the document, the text, the site and the seed alone."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_bench.errors import UsageError
from adaptive_bench.method import document_key
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.training.encoding import EncodedExample, training_batch


@pytest.fixture
def draws(make_model, monkeypatch):
    """`draws(ids, dial, seed=, mask=, spec=, documents=)`: keep masks [2L, B, S] of one forward call."""

    def collect(ids, dial, seed=1, mask=None, spec="random_skip", train=False, documents=None):
        model = make_model(spec, seed=seed).train(train)
        model.dial = dial
        decide, masks = model.method.decide, []

        def spy(view):
            decision = decide(view)
            masks.append(decision.keep)
            return decision

        monkeypatch.setattr(model.method, "decide", spy)
        with torch.no_grad():
            model(ids, mask, documents=documents)
        return torch.stack(masks)

    return collect


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_rate(share, draws, random_text):
    """T-RS1: each site skips within binomial bounds (5 sigma), independently of other sites and of the last token."""
    skipped = (~draws(random_text(60, 40), share)).float()  # [8, 60, 40]
    bound = 5 * (share * (1 - share) / 2400) ** 0.5
    assert (skipped.mean(dim=(1, 2)) - share).abs().max() < bound
    centred = skipped.flatten(1) - skipped.flatten(1).mean(dim=1, keepdim=True)
    correlations = torch.corrcoef(centred)
    assert (correlations - torch.eye(8)).abs().max() < 5 / 2400**0.5
    neighbours = torch.corrcoef(torch.stack([skipped[:, :, 1:].flatten(), skipped[:, :, :-1].flatten()]))[0, 1]
    assert neighbours.abs() < 5 / (8 * 60 * 39) ** 0.5


def test_draws_belong_to_prefix_site_and_seed(draws, random_text):
    """T-RS2, X12: same prefix, same fate, in any batch, padded or not; another prefix, site or seed is another draw."""
    ids = random_text(2, 30)
    ids[1, :15] = ids[0, :15]
    masks = draws(ids, 0.5)
    assert torch.equal(masks[:, 0, :15], masks[:, 1, :15])
    ids[1, 15:20] = ids[0, 15:20] + 0  # same again up to 20
    ids[1, 3] = (ids[1, 3] + 1) % 97  # but for one early token
    changed = draws(ids, 0.5)
    assert torch.equal(changed[:, 1, :3], masks[:, 1, :3])
    assert (changed[:, 1, 3:] != masks[:, 0, 3:]).float().mean() > 0.3
    assert torch.equal(draws(ids[:1], 0.5), masks[:, :1])
    assert (draws(ids, 0.5, seed=2) != changed).float().mean() > 0.3
    padded = torch.cat([torch.zeros(2, 4, dtype=torch.long), ids], dim=1)
    assert torch.equal(draws(padded, 0.5, mask=padded > 0)[:, :, 4:], changed)


def test_more_probability_skips_a_superset(draws, random_text):
    """X6: what skips at one probability skips at every larger one."""
    ids = random_text(4, 20)
    masks = [draws(ids, share) for share in (0.1, 0.3, 0.6, 1.0)]
    for smaller, larger in pairwise(masks):
        assert not (larger & ~smaller).any()
    assert not masks[-1].any()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
@torch.no_grad()
def test_probability_one(family, shared_model, shared_backbone, random_text):
    """T-RS4: everything skips: embedding, final norm, head; all core work but the head is saved."""
    ids, backbone = random_text(2, 9), shared_backbone(family)
    for kv in ("recompute", "copy_below", "evict"):
        model = shared_model(f"random_skip[kv={kv}]", family)
        model.dial = 1.0
        wanted = model.backbone.head(backbone.model.norm(backbone.model.embed_tokens(ids)))
        for model.executor in ("masked", "packed"):
            torch.testing.assert_close(model(ids).logits, wanted, atol=1e-5, rtol=0)
            model.reset_ledger()
            new_tokens(model, ids, max_new_tokens=4)
            macs, saved = model.compute_report()["macs"], model.compute_report()["saved"]
            assert saved["tokens"] == 1.0
            assert sum(macs[bucket] for bucket in macs if bucket.startswith("core.")) == macs["core.head"] > 0


@torch.no_grad()
def test_untrained_is_dense_in_training(trainee, random_text):
    """Section 4: plain `random_skip` is the dense model until it is evaluated, whatever its dial says."""
    ids = random_text(2, 9)
    model, dense = trainee("random_skip"), trainee("dense")
    model.dial = 0.5
    assert torch.equal(model(ids).logits, dense(ids).logits)


@torch.no_grad()
def test_training_draws_anew_each_step(trainee, random_text):
    """X12, X16: one draw per optimizer step, the same for every call within it; other steps drop other tokens."""
    model, ids = trainee("random_skip[trained=true,share_end=0.5]", step=9, total_steps=10), random_text(2, 9)
    first, again = model(ids).logits, model(ids).logits
    model.begin_step(10, 10)  # same share: the schedule is over
    assert torch.equal(first, again) and (model(ids).logits - first).abs().max() > 0.1


def keys(*documents):
    """[B] keys of documents by number."""
    return torch.tensor([document_key("some_task", number) for number in documents])


def template(rows, shared, length, random_text):
    """[rows, length] texts that begin with the same `shared` tokens."""
    text = random_text(rows, length)
    text[:, :shared] = text[0, :shared]
    return text


@torch.no_grad()
def test_the_saving_spreads_as_that_of_independent_draws(shared_model, random_text):
    """Golden: 64 texts that share 12 of 16 tokens, at .2 of their 8 branches. Every text's saving has the standard
    deviation of 128 draws, sqrt(.2 * .8 / 128) = .0354, and the level of a seed that of 8192, .00442, around .2.
    """
    model, text = shared_model("random_skip"), template(64, 12, 16, random_text)
    documents, seed, levels, spreads = keys(*range(64)), model.method.seed, [], []
    model.dial = 0.2
    try:
        for model.method.seed in range(100):
            model.reset_ledger()
            with recorded_decisions(model.method) as decisions:
                model(text, documents=documents, logits_to_keep=1)
            levels.append(model.compute_report()["saved"]["tokens"])
            spreads.append(1 - torch.stack([decision.keep for _, decision in decisions]).double().mean(dim=(0, 2)))
    finally:
        model.method.seed = seed
    levels, spreads = torch.tensor(levels, dtype=torch.float64), torch.stack(spreads)
    torch.testing.assert_close(spreads.mean(dim=1), levels)
    assert spreads.std(dim=1).mean() == pytest.approx((0.16 / 128) ** 0.5, rel=0.2)
    assert levels.std() == pytest.approx((0.16 / 8192) ** 0.5, rel=0.2)
    assert (levels - 0.2).abs().max() < 5 * (0.16 / 8192) ** 0.5


def test_documents_draw_apart_and_calls_that_name_none_draw_by_the_text(draws, random_text):
    """Equal texts of two documents are two draws, the same document is one; without documents equal texts are one."""
    ids = random_text(1, 40).expand(3, -1)
    masks = draws(ids, 0.5, documents=keys(1, 2, 1))
    assert torch.equal(masks[:, 0], masks[:, 2])
    agreement = (masks[:, 0] == masks[:, 1]).float().mean()
    assert (agreement - 0.5).abs() < 5 * (0.25 / masks[:, 0].numel()) ** 0.5
    unnamed = draws(ids, 0.5)
    assert torch.equal(unnamed, unnamed[:, :1].expand_as(unnamed))
    assert not torch.equal(unnamed[:, 0], masks[:, 0])


@settings(max_examples=20, deadline=None)
@given(
    documents=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
    order=st.permutations(range(3)),
    lengths=st.lists(st.integers(2, 9), min_size=3, max_size=3),
    cut=st.integers(1, 8),
)
@torch.no_grad()
def test_draws_are_those_of_the_document_alone_however_it_is_computed(
    shared_model, random_text, documents, order, lengths, cut
):
    """The fates of a document's tokens are those it has alone: in any batch, padded on either side, with a cache, in
    decoding, forked for several continuations, and after rows have left and joined.
    """
    model, documents = shared_model("random_skip"), torch.tensor(documents)
    model.dial, ids = 0.4, template(3, 6, 9, random_text)

    def fates(text, mask=None, **given):
        with recorded_decisions(model.method) as decisions:
            output = model(text, mask, **given)
        return torch.stack([decision.keep for _, decision in decisions]), output.past_key_values

    alone = [fates(ids[row : row + 1], documents=documents[row : row + 1])[0][:, 0] for row in range(3)]
    permuted = torch.tensor(order)
    together, _ = fates(ids[permuted], documents=documents[permuted])
    assert torch.equal(together, torch.stack([alone[row] for row in order], dim=1))

    for side in ("left", "right"):
        mask = torch.stack([(torch.arange(9) < n) if side == "right" else (torch.arange(9) >= 9 - n) for n in lengths])
        padded = torch.zeros_like(ids).masked_scatter(mask, torch.cat([ids[row, :n] for row, n in enumerate(lengths)]))
        found, _ = fates(padded, mask.long(), documents=documents)
        for row, length in enumerate(lengths):
            assert torch.equal(found[:, row, mask[row]], alone[row][:, :length])

    begun, cache = fates(ids[:, :cut], documents=documents, use_cache=True)
    fork = cache.fork(torch.tensor([2, 0, 2]))  # two continuations of one document and one of another
    tails, _ = fates(ids[[2, 0, 2], cut:], past_key_values=fork, phase="prefill")
    later = [fates(ids[:, at : at + 1], past_key_values=cache, use_cache=True)[0] for at in range(cut, 9)]
    assert torch.equal(torch.cat([begun, *later], dim=2), torch.stack(alone, dim=1))
    for place, row in enumerate((2, 0, 2)):
        assert torch.equal(tails[:, place], alone[row][:, cut:])

    _, cache = fates(ids[:2, :cut], documents=documents[:2], use_cache=True)
    cache.select_rows(torch.tensor([1]))
    cache.join(fates(ids[2:, :cut], documents=documents[2:], use_cache=True)[1])
    joined, _ = fates(ids[1:, cut:], past_key_values=cache)
    assert torch.equal(joined, torch.stack([each[:, cut:] for each in alone[1:]], dim=1))


@torch.no_grad()
def test_documents_are_named_once_for_every_row(shared_model, random_text):
    model, ids = shared_model("random_skip"), random_text(2, 6)
    cache = model(ids, documents=keys(1, 2), use_cache=True).past_key_values
    with pytest.raises(UsageError, match="in a later call"):
        model(ids, documents=keys(1, 2), past_key_values=cache)
    for wrong in (keys(1), keys(1, 2).float()):
        with pytest.raises(UsageError, match="each of the 2 rows"):
            model(ids, documents=wrong)


@torch.no_grad()
def test_training_steps_draw_by_document(trainee, random_text):
    """`trained=true`: examples with one beginning and two ends lose different tokens of the beginning in a step."""
    model = trainee("random_skip[trained=true,share_end=0.5]", step=9, total_steps=10)
    texts = template(2, 20, 24, random_text).tolist()
    batch = training_batch([EncodedExample(tuple(text), 20) for text in texts], pad_id=0)
    with recorded_decisions(model.method) as decisions:
        model(**batch)
    kept = torch.stack([decision.keep for _, decision in decisions])[:, :, :20]
    agreement = (kept[:, 0] == kept[:, 1]).float().mean()
    assert (agreement - 0.5).abs() < 5 * (0.25 / kept[:, 0].numel()) ** 0.5
