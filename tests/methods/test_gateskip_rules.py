"""GateSkip's rules in `paper` semantics against a few lines of the released code and of the paper's text."""

import pytest
import torch
from torch.nn import functional

from adaptive_bench.methods.gateskip import released_keep, released_training_keep

SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
SITES, WIDTH = 8, 32


def released(scores, valid, share):
    """[B, S] who skips by `ThresholdFinder` and `GatedWrapper` of the released code."""
    ranked = scores[valid].flatten()
    if ranked.numel() <= 1 or (ranked == 1.0).all() or share == 0.0:
        return torch.zeros_like(valid)
    return valid & (scores <= torch.quantile(ranked, share, interpolation="linear").item())


def released_in_training(scores, valid, share):
    """[B, S] who skips by `GatedWrapper` of the released code while its percentile rises."""
    ordered = torch.sort(scores[valid].flatten()).values
    threshold = ordered[min(int(share * len(ordered) + 1e-9), len(ordered) - 1)].item()
    return valid & (scores <= (threshold if threshold != 1.0 else 0.999))


def by_the_text(scores, valid, share):
    """[B, S] who skips by Algorithm 3 and equation 6."""
    ordered = sorted(scores[valid].double().tolist())
    threshold = ordered[0]
    if len(ordered) > 1 and ordered[0] != ordered[-1]:
        place = share * (len(ordered) - 1)
        low = int(place)
        threshold = (1 - place + low) * ordered[low] + (place - low) * ordered[min(low + 1, len(ordered) - 1)]
    return valid & (scores.double() <= threshold)


@pytest.fixture
def watched_call():
    """Runs a call and gives, site by site, scores recomputed from the gates' outputs, and who skipped."""

    def run(model, *arguments, **options):
        gates, keeps = [], []
        hooks = [gate.register_forward_hook(lambda *parts: gates.append(parts[2])) for gate in model.method.gates]
        model.method.listeners.append(lambda view, decision: keeps.append(decision.keep))
        try:
            output = model(*arguments, **options)
        finally:
            model.method.listeners.clear()
            for hook in hooks:
                hook.remove()
        assert len(gates) == len(keeps) == SITES
        scores = [torch.sigmoid(gate.detach()).mean(dim=-1) for gate in gates]
        return output, list(zip(scores, keeps, strict=True))

    return run


@pytest.mark.parametrize("rule", ["code", "text"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 16])
@torch.no_grad()
def test_a_rule_is_the_published_one(rule, rows, make_model, random_text, watched_call):
    """G3 to G6: whoever skips is who skips by the published rule, in a ragged prompt and in cached decoding, at every
    batch size and share.
    """
    model, reference = make_model(f"gateskip[rule={rule}]@paper"), released if rule == "code" else by_the_text
    ids = random_text(rows, 9)
    mask = torch.arange(8) >= torch.arange(rows)[:, None] % 5
    ends = functional.pad(mask, (0, 1), value=True)
    for share in SHARES:
        model.dial = 1.0 - share
        output, prompt = watched_call(model, ids[:, :8], mask, use_cache=True)
        _, step = watched_call(model, ids[:, 8:], ends, past_key_values=output.past_key_values, use_cache=True)
        for valid, sites in ((mask, prompt), (ends[:, 8:], step)):
            for scores, keep in sites:
                kept = valid if keep is None else valid & keep
                assert torch.equal(valid & ~kept, reference(scores, valid, share)), (rows, share)


def test_scores_that_are_hard_to_rank():
    """The released rules on ties, on saturated gates, at both ends, and where nobody is real."""
    torch.manual_seed(0)
    valid = torch.rand(6, 40) > 0.3
    tied = (torch.rand(6, 40) * 4).round() / 8 + 0.5  # .5 to 1
    for scores in (torch.rand(6, 40), tied, torch.ones(6, 40), torch.full((6, 40), 0.7), tied.masked_fill(valid, 1.0)):
        for share in (0.0, *SHARES, 0.57, 1.0):
            assert torch.equal(valid & ~released_keep(scores, valid, share), released(scores, valid, share))
            dropped = valid & ~released_training_keep(scores, valid, share)
            assert torch.equal(dropped, released_in_training(scores, valid, share))
    nobody = torch.zeros_like(valid)
    assert not released_keep(tied, nobody, 0.3).any()


@pytest.mark.parametrize("rule", ["code", "text"])
def test_who_is_dropped_in_training(rule, trainee, training_batch, watched_call):
    """G17: floor(q n) + 1 of all n real tokens of a batch by the released code, prompts and answers together, at the
    first step one; the text's quantile in its place.
    """
    model, (ids, mask, labels) = trainee(f"gateskip[rule={rule}]@paper"), training_batch
    count = int(mask.sum())
    for step, share in ((1, 0.0), (8, 0.1), (15, 0.2), (21, 0.2)):
        model.begin_step(step, 21)
        _, sites = watched_call(model, ids, mask, labels=labels, continuation_mask=labels != -100)
        reference = released_in_training if rule == "code" else by_the_text
        number = int(share * count + 1e-9) + 1 if rule == "code" else int(share * (count - 1) + 1e-9) + 1
        for scores, keep in sites:
            assert torch.equal(mask & ~keep, reference(scores, mask, share))
            assert int((mask & ~keep).sum()) == number


@pytest.mark.parametrize("shape", ["vector", "scalar"])
def test_the_penalty_of_the_released_code_counts_padding(shape, trainee, training_batch):
    """R6: `gate_value.pow(2).mean()` over batch, positions and channels, padding included."""
    model, (ids, mask, labels) = trainee(f"gateskip[shape={shape}]@paper"), training_batch
    assert not mask.all()
    gates = []
    for gate in model.method.gates:
        gate.register_forward_hook(lambda _, __, output: gates.append(torch.sigmoid(output)))
    model(ids, mask, labels=labels)
    wanted = torch.stack([gate.pow(2).mean() for gate in gates]).mean()
    assert model.loss_terms["sparsity"] == pytest.approx(wanted.item(), rel=1e-5)
