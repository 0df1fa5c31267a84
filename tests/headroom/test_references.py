"""The references beside the oracles: all subsets of layers, EAS, ideal speculation."""

from itertools import combinations, product

import pytest
import torch

from adaptive_bench.headroom.replay import DenseText
from adaptive_bench.headroom.similarity import cosines, suitability
from adaptive_bench.headroom.speculation import fewest_passes_per_token, passes_per_token
from adaptive_bench.headroom.subsets import smallest_subsets, token_subsets


def _choice(backbone, tokens, kept):
    """What a plain Hugging Face run predicts whose last token runs the kept layers alone, all others every layer."""
    handles = []

    def leave_out(module, inputs, output):
        output = output.clone()
        output[:, -1] = inputs[0][:, -1]
        return output

    try:
        for number, layer in enumerate(backbone.model.layers):
            if number not in kept:
                handles.append(layer.register_forward_hook(leave_out))
        with torch.no_grad():
            return int(backbone(tokens[None]).logits[0, -1].argmax())
    finally:
        for handle in handles:
            handle.remove()


def test_the_subset_oracle_is_brute_force_over_the_plain_model(shared_backbone, random_text):
    backbone = shared_backbone("llama")
    for tokens in random_text(4, 7, seed=11):
        found = token_subsets(backbone, tokens)
        wanted = _choice(backbone, tokens, range(4))
        for number in range(16):
            kept = [layer for layer in range(4) if number >> layer & 1]
            assert bool(found.preserving[number]) == (_choice(backbone, tokens, kept) == wanted), kept
        assert found.kept == min(
            len(kept)
            for size in range(5)
            for kept in combinations(range(4), size)
            if _choice(backbone, tokens, kept) == wanted
        )


def test_no_exit_and_no_static_set_that_keeps_the_token_is_smaller(shared_backbone, texts):
    """T-OR6; an exit after layer l is the subset of the first l layers."""
    backbone = shared_backbone("llama")
    text = texts[1]
    dense = DenseText.of(backbone, [text], rows=1)
    for place, (first, stable) in enumerate(zip(dense.first.tolist(), dense.stable.tolist(), strict=True)):
        found = token_subsets(backbone, torch.tensor(text.read[: len(text.prompt) + place]))
        assert found.preserving[2**first - 1]
        assert found.kept <= first <= stable
        sizes = [bin(number).count("1") for number in found.preserving.nonzero()[:, 0].tolist()]
        assert found.kept == min(sizes)


def test_tokens_are_drawn_among_those_that_write(shared_backbone, texts):
    backbone = shared_backbone("llama")
    found = [one.kept for one in smallest_subsets(backbone, texts, 6, seed=0)]
    assert len(found) == 6
    assert found == [one.kept for one in smallest_subsets(backbone, texts, 6, seed=0)]
    everybody = sum(len(text.answer) for text in texts)
    assert len(list(smallest_subsets(backbone, texts, 1000, seed=0))) == everybody


def test_suitability_of_equal_similarities():
    """T-OR7."""
    assert suitability([1.0] * 4) == pytest.approx((0.75**0.5 + 0.5**0.5 + 0.25**0.5) / 4)
    assert suitability([1.0] * 4) == pytest.approx(0.518, abs=5e-4)
    assert suitability([0.25] * 4) == pytest.approx(0.259, abs=5e-4)
    assert suitability([-1.0, -0.5, 0.0, 1.0]) == 0.0
    assert suitability([0.5, 0.6, 1.0], alpha=1.0) == pytest.approx(0.7)  # cosines alone


def test_cosines_are_with_the_last_layer():
    states = [torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [2.0, 2.0]])]
    assert cosines(states).tolist() == [pytest.approx([0.0, 1.0]), pytest.approx([1.0, 1.0])]


@pytest.mark.parametrize("drafts", [0, 1, 3, 5])
def test_speculation_with_constant_exits(drafts):
    """T-OR8."""
    text = [3] * (4 * (drafts + 1))
    assert passes_per_token(text, 8, drafts) == pytest.approx((drafts * 3 + 8) / (drafts + 1))


def test_the_best_drafts_are_those_of_brute_force():
    exits, layers = [1, 7, 2, 2, 8, 1], 8
    costs = []
    for marks in product((False, True), repeat=len(exits) - 1):  # who is the verifier's own token; the last one is
        drafted = [depth for depth, verified in zip(exits, [*marks, True], strict=True) if not verified]
        costs.append((sum(drafted) + layers * (sum(marks) + 1)) / len(exits))
    assert fewest_passes_per_token(exits, layers) == pytest.approx(min(costs))
    assert fewest_passes_per_token(exits, layers) <= min(passes_per_token(exits, layers, n) for n in range(7))
