"""Random skipping: counter-based draws that depend on the text, the site and the seed alone."""

from itertools import pairwise

import pytest
import torch

from adaptive_bench.method import SiteView
from adaptive_bench.model.generation import new_tokens


@pytest.fixture
def draws(make_model, monkeypatch):
    """`draws(ids, dial, seed=, mask=, spec=)`: keep masks [2L, B, S] of one forward call."""

    def collect(ids, dial, seed=1, mask=None, spec="random_skip", train=False):
        model = make_model(spec, seed=seed).train(train)
        model.dial = dial
        decide, masks = model.method.decide, []

        def spy(view: SiteView):
            decision = decide(view)
            masks.append(decision.keep)
            return decision

        monkeypatch.setattr(model.method, "decide", spy)
        with torch.no_grad():
            model(ids, mask)
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


def test_training_schedule(trainee):
    """`trained=true` skips nothing at the first step, and a fifth from 70 % of the training on."""
    model = trainee("random_skip[trained=true]", step=1, total_steps=11)
    shares = []
    for step in range(1, 14):
        model.begin_step(step, 11)
        shares.append(model.method.skip_share)
    assert shares[0] == 0 and shares[4] == pytest.approx(0.2 * 4 / 7) and shares[7:] == [0.2] * 6
    assert shares == sorted(shares)


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
    model, ids = trainee("random_skip[trained=true,share_end=0.5]", step=10, total_steps=10), random_text(2, 9)
    first, again = model(ids).logits, model(ids).logits
    model.begin_step(11, 10)  # same share: the schedule is over
    assert torch.equal(first, again) and (model(ids).logits - first).abs().max() > 0.1
