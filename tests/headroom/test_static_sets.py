"""Which layers to leave out for everybody: how far predictions move without them, and which sets go on."""

from itertools import combinations

import pytest
import torch

from adaptive_bench.headroom import static_sets
from adaptive_bench.headroom.static_sets import StaticSets, next_nested
from adaptive_bench.progress import SilentReporter


def _log_probabilities(backbone, ids):
    with torch.no_grad():
        return backbone(torch.tensor([ids])).logits[0].log_softmax(dim=-1)


def _mean_divergence(backbone, other, texts):
    """KL(full || other) where answers are predicted, token by token, from plain Hugging Face models."""
    answers = []
    for text in texts:
        full, changed = _log_probabilities(backbone, text.read), _log_probabilities(other, text.read)
        answers.append((full.exp() * (full - changed)).sum(dim=-1)[len(text.prompt) - 1 :])
    return float(torch.cat(answers).mean())


def test_a_set_is_the_plain_model_without_its_layers(silent, shared_backbone, texts):
    sets = StaticSets(shared_backbone("llama"), texts, rows=2)
    for skipped in [(0,), (1,), (1, 2), (0, 3), (1, 3), (0, 2, 3)]:
        expected = _mean_divergence(shared_backbone("llama"), silent(skipped), texts)
        assert sets.divergence(skipped) == pytest.approx(expected, rel=1e-4)


def _sizes(backbone, texts):
    sets = StaticSets(backbone, texts, rows=5)
    found, nested = [], ()
    for count in range(1, 4):
        found.append(sets.finalists(count, nested, SilentReporter(), "toy"))
        nested = next_nested(found[-1], nested).skipped
    return found


def test_the_best_of_all_subsets_of_each_size_go_on(shared_backbone, texts):
    backbone = shared_backbone("llama")
    nested = set()
    for count, sets in enumerate(_sizes(backbone, texts), 1):
        alone = StaticSets(backbone, texts, rows=5)
        distances = {skipped: alone.divergence(skipped) for skipped in combinations(range(4), count)}
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
