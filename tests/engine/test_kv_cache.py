"""What the cache holds after a call, by KV policy, and what happens when rows leave it."""

import pytest
import torch
from transformers import Cache

from adaptive_bench.engine.kv_cache import AdaptiveCache, Write
from adaptive_bench.errors import UsageError

LAYERS = 4


def stored(model, layer, cache):
    """K,V [B, S, kv heads, head size] of a layer."""
    keys, values = cache.stores[layer].view()
    return keys.transpose(1, 2), values.transpose(1, 2)


@pytest.mark.parametrize("executor", ["packed", "masked"])
@torch.no_grad()
def test_copy_below_is_the_tensor_of_the_layer_below(executor, shared_backbone, make_pattern, run_pattern, random_text):
    """T-GS13: a skipped token's K,V at layer l are exactly what layer l-1 holds; layer 0 projects its own."""
    backbone, ids = shared_backbone("llama"), random_text(2, 9)
    pattern = make_pattern(2, 9, LAYERS, kv="copy_below", share=0.5, scaled=False)
    pattern.keep[0, 4] = False  # layer 2: one row skips entirely
    pattern.keep[:, 6] = False  # layer 3: everybody skips
    model = run_pattern(backbone, pattern)
    model.executor = executor
    cache = model(ids, use_cache=True).past_key_values
    dense = run_pattern(backbone, make_pattern(2, 9, LAYERS, share=1.0, scaled=False))(ids, use_cache=True)
    for layer in range(LAYERS):
        kept = pattern.keep[:, 2 * layer]
        below = stored(model, layer - 1, cache) if layer else stored(dense, 0, dense.past_key_values)
        for ours, theirs in zip(stored(model, layer, cache), below, strict=True):
            if layer == 0:
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
            else:
                assert torch.equal(ours[~kept], theirs[~kept])
                assert not kept.any() or (ours[kept] != theirs[kept]).any(dim=-1).all()


def test_copy_below_needs_equal_shapes():
    """T-GS13: neighbouring layers with different K,V heads are refused with the way out."""
    cache = AdaptiveCache(1, torch.device("cpu"), "copy_below", ragged=False)
    positions, valid = torch.arange(2)[None], torch.ones(1, 2, dtype=torch.bool)
    cache.begin(positions, valid, padded=False)
    cache.expect(0, Write(positions, valid))
    cache.update(torch.zeros(1, 2, 2, 8), torch.zeros(1, 2, 2, 8), 0)
    cache.expect(1, Write(positions, valid, keep=torch.tensor([[True, False]])))
    with pytest.raises(UsageError, match="kv=recompute"):
        cache.update(torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8), 1)


@torch.no_grad()
def test_evicted_rows_are_ragged(shared_backbone, make_pattern, run_pattern, random_text):
    """T-MoD9: a layer's cache holds as many slots per row as tokens executed it; positions stay the original ones."""
    pattern = make_pattern(3, 12, LAYERS, kv="evict", share=0.5)
    pattern.keep[1, 2] = False  # layer 1: row 1 stores nothing
    model, ids = run_pattern(shared_backbone("llama"), pattern), random_text(3, 12)
    cache = model(ids[:, :8], torch.arange(8).expand(3, 8) >= torch.tensor([[0], [3], [5]]), use_cache=True)
    cache = model(ids[:, 8:], past_key_values=cache.past_key_values, use_cache=True).past_key_values
    for layer in range(LAYERS):
        store = cache.stores[layer]
        for row, length in enumerate((12, 9, 7)):
            selected = pattern.keep[row, 2 * layer, :length].nonzero()[:, 0].tolist()
            assert store.table.lengths[row] == len(selected)
            positions = store.table.visible()[row]
            assert positions[positions >= 0].tolist() == selected


@pytest.mark.parametrize("kv", ["recompute", "copy_below", "evict"])
@pytest.mark.parametrize("executor", ["packed", "masked"])
@torch.no_grad()
def test_rows_can_leave(kv, executor, shared_backbone, make_pattern, run_pattern, reference, random_text):
    """X4, X17: after some rows left (and the rest changed places) the others go on as if nothing had happened."""
    backbone, ids = shared_backbone("mistral"), random_text(4, 16)
    pattern = make_pattern(4, 16, LAYERS, kv=kv, share=0.5)
    model = run_pattern(backbone, pattern)
    model.executor = executor
    output = model(ids[:, :6], use_cache=True)
    rows = torch.arange(4)
    for start, kept in ((6, [3, 0, 1]), (9, [1, 0]), (10, [1])):
        output.past_key_values.select_rows(torch.tensor(kept))
        rows, width = rows[kept], {6: 3, 9: 1, 10: 6}[start]
        output = model(ids[rows, start : start + width], past_key_values=output.past_key_values, use_cache=True)
        for place, row in enumerate(rows.tolist()):
            wanted = reference(backbone, ids[row, : start + width], pattern, row)[start:]
            torch.testing.assert_close(output.logits[place], wanted, atol=1e-4, rtol=0)
    assert rows.tolist() == [3]


@pytest.mark.parametrize("name", ["crop", "reset", "reorder_cache", "batch_repeat_interleave", "batch_select_indices"])
def test_what_would_silently_do_nothing_is_refused(name):
    assert hasattr(Cache, name)
    cache = AdaptiveCache(2, torch.device("cpu"), "recompute", ragged=False)
    with pytest.raises(UsageError, match="rewind or select_rows"):
        getattr(cache, name)(-1)
