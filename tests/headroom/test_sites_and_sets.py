"""How far predictions move where sites are skipped, and which layers to leave out for everybody."""

from itertools import combinations

import pytest
import torch

from adaptive_bench.headroom import static_sets
from adaptive_bench.headroom.divergence import FullModel
from adaptive_bench.headroom.sensitivity import dominance, site_sensitivity
from adaptive_bench.headroom.static_sets import finalists, next_nested
from adaptive_bench.model.prescribed import static_model
from adaptive_bench.progress import SilentReporter

BRANCHES = ("attention", "mlp")


def _log_probabilities(backbone, ids):
    with torch.no_grad():
        return backbone(torch.tensor([ids])).logits[0].log_softmax(dim=-1)


def _mean_divergence(backbone, other, texts):
    """KL(full || other) token by token, from plain Hugging Face models: everywhere, and where answers are predicted."""
    everywhere, answers = [], []
    for text in texts:
        full, changed = _log_probabilities(backbone, text.read), _log_probabilities(other, text.read)
        each = (full.exp() * (full - changed)).sum(dim=-1)
        everywhere.append(each)
        answers.append(each[len(text.prompt) - 1 :])
    return float(torch.cat(everywhere).mean()), float(torch.cat(answers).mean())


def _without(make_backbone, sites):
    backbone = make_backbone("llama")
    with torch.no_grad():
        for layer, branch in sites:
            module = backbone.model.layers[layer]
            (module.self_attn.o_proj if branch == "attention" else module.mlp.down_proj).weight.zero_()
    return backbone


def test_a_site_that_everybody_skips_is_a_model_without_it(make_backbone, shared_backbone, texts):
    backbone = shared_backbone("llama")
    full = FullModel(static_model(backbone, ()), texts, rows=2)
    rows = site_sensitivity(backbone, full, seed=0)
    assert [(row["layer"], row["branch"]) for row in rows] == [(n, branch) for n in range(4) for branch in BRANCHES]
    for row in rows:
        expected = _mean_divergence(backbone, _without(make_backbone, [(row["layer"], row["branch"])]), texts)
        assert (row["all"]["everywhere"], row["all"]["answers"]) == pytest.approx(expected, rel=1e-4)
        assert 0 < row["share"]["everywhere"] < row["all"]["everywhere"] * 1.5
    assert rows == site_sensitivity(backbone, full, seed=0)
    assert rows != site_sensitivity(backbone, full, seed=1)


def test_dominance_is_the_largest_site_over_the_median():
    rows = [{"share": {"everywhere": value}} for value in (0.1, 0.2, 8.0, 0.3, 0.1)]
    assert dominance(rows) == pytest.approx(40.0)
    assert dominance([{"share": {"everywhere": 0.0}}] * 3) is None


def test_looking_at_answers_alone_changes_nothing(shared_backbone, texts):
    backbone = shared_backbone("llama")
    other = static_model(backbone, [1])
    both = FullModel(static_model(backbone, ()), texts, rows=2).divergence(other)
    answers = FullModel(static_model(backbone, ()), texts, rows=5, answers_only=True).divergence(other)
    assert answers.answers == pytest.approx(both.answers, rel=1e-5)
    assert answers.everywhere == answers.answers


def test_layers_that_are_left_out_are_gone_and_counted(make_backbone, shared_backbone, texts):
    backbone = shared_backbone("llama")
    full = FullModel(static_model(backbone, ()), texts, rows=2)
    model = static_model(backbone, [0, 2])
    found = full.divergence(model)
    sites = [(layer, branch) for layer in (0, 2) for branch in BRANCHES]
    assert tuple(found) == pytest.approx(_mean_divergence(backbone, _without(make_backbone, sites), texts), rel=1e-4)
    assert model.compute_report()["saved"]["tokens"] == pytest.approx(0.5)


def _sizes(backbone, texts):
    full = FullModel(static_model(backbone, ()), texts, rows=5, answers_only=True)
    found, nested = [], ()
    for count in range(1, 4):
        found.append(finalists(backbone, full, count, nested, SilentReporter(), "toy"))
        nested = next_nested(found[-1], nested).skipped
    return found


def test_the_best_of_all_subsets_of_each_size_go_on(shared_backbone, texts):
    backbone = shared_backbone("llama")
    full = FullModel(static_model(backbone, ()), texts, rows=5, answers_only=True)
    nested = set()
    for count, sets in enumerate(_sizes(backbone, texts), 1):
        distances = {
            skipped: full.divergence(static_model(backbone, skipped)).answers
            for skipped in combinations(range(4), count)
        }
        assert sets[0].skipped == min(distances, key=distances.__getitem__)
        assert [one.divergence for one in sets[:3]] == pytest.approx(sorted(distances.values())[:3])
        extensions = {skipped: distances[skipped] for skipped in distances if nested < set(skipped)}
        extending = next_nested(sets, nested).skipped
        assert extending == min(extensions, key=extensions.__getitem__)
        nested = set(extending)


def test_many_subsets_are_searched_one_layer_at_a_time(shared_backbone, texts, monkeypatch):
    monkeypatch.setattr(static_sets, "MOST_SUBSETS", 1)
    sizes = _sizes(shared_backbone("llama"), texts)
    assert [len(sets) for sets in sizes] == [3, 3, 2]
    chain = [set(sets[0].skipped) for sets in sizes]
    assert chain[0] < chain[1] < chain[2]
