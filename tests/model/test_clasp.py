"""CLaSp: layers chosen for each draft, by a dynamic programme over the last token."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

from adaptive_bench.engine.ledger import Ledger, cosine_macs
from adaptive_bench.method import EXECUTE_ALL
from adaptive_bench.model.clasp import Clasp, best_layer_sets, clasp_model
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.padding import padded
from adaptive_bench.model.speculation import self_speculate

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "granite", "olmo2", "phi3")
NEW, LENGTHS = 12, (7, 3, 9)


@pytest.fixture
def prompts(random_text):
    texts = [random_text(1, length, seed)[0].tolist() for seed, length in enumerate(LENGTHS)]
    return padded(texts, torch.device("cpu"), left=True)


@torch.no_grad()
def reference(backbone_model, text, skipped):
    """D(L, M) by the paper's recursion, state by state: each layer reads the full model's states of earlier tokens and
    one candidate for the last.
    """
    decoder, ids = backbone_model.model, torch.tensor([text])
    inputs, handles = [], []
    for layer in decoder.layers:
        handles.append(
            layer.register_forward_pre_hook(lambda _, given, named: inputs.append((given, named)), with_kwargs=True)
        )
    backbone_model(ids, use_cache=False)
    for handle in handles:
        handle.remove()

    def run(layer, state):
        given, named = inputs[layer]
        states = (given[0] if given else named["hidden_states"]).clone()
        states[0, -1] = state
        if given:
            output = decoder.layers[layer](states, *given[1:], **named)
        else:
            output = decoder.layers[layer](**(named | {"hidden_states": states}))
        return (output[0] if isinstance(output, tuple) else output)[0, -1]

    start = inputs[0][0][0] if inputs[0][0] else inputs[0][1]["hidden_states"]
    best, full = {0: (start[0, -1], ())}, start[0, -1]
    for layer in range(len(decoder.layers)):
        full, after = run(layer, full), {}
        for left_out in range(min(layer + 1, skipped) + 1):
            options = []
            if left_out in best:
                state, chosen = best[left_out]
                options.append((run(layer, state), chosen))
            if left_out - 1 in best:
                state, chosen = best[left_out - 1]
                options.append((state, (*chosen, layer)))
            after[left_out] = max(options, key=lambda one: float(cosine_similarity(full, one[0], dim=0)))
        best = after
    return list(best[skipped][1])


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_sets_are_those_of_the_recursion(family, shared_backbone, prompts):
    """Of every row as if it were alone, whatever stands in the cache beside it."""
    backbone_model = shared_backbone(family)
    model, (ids, mask) = clasp_model(backbone_model), prompts
    cache = model(ids, mask, use_cache=True).past_key_values
    chosen = set()
    for skipped in range(model.backbone.num_layers + 1):
        sets = best_layer_sets(model.backbone, cache, ids[:, -1], skipped)
        for row, found in enumerate(sets):
            text = ids[row][mask[row].bool()].tolist()
            assert found.nonzero()[:, 0].tolist() == reference(backbone_model, text, skipped), (row, skipped)
            chosen.add((skipped, tuple(found.tolist())))
    if model.backbone.num_layers > 3:  # fewer leave little to choose
        assert len(chosen) > model.backbone.num_layers + 1  # rows differ
    assert cache.session.host_lengths.tolist() == list(LENGTHS)


@torch.no_grad()
@pytest.mark.parametrize("idle", [[1], [0, 2], [1, 2, 3]])
def test_identity_layers_cost_nothing_when_skipped(idle, make_backbone, prompts):
    """T-LE5: layers that add nothing are those left out, and then every draft is accepted."""
    backbone_model, (ids, mask) = make_backbone("llama"), prompts
    for layer in idle:
        for part in (
            backbone_model.model.layers[layer].self_attn.o_proj,
            backbone_model.model.layers[layer].mlp.down_proj,
        ):
            part.weight.zero_()
    model = clasp_model(backbone_model)
    cache = model(ids, mask, use_cache=True).past_key_values
    sets = best_layer_sets(model.backbone, cache, ids[:, -1], len(idle))
    assert [row.nonzero()[:, 0].tolist() for row in sets] == [idle] * 3
    found = self_speculate(model, ids, mask, draft_dial=len(idle), drafts=3, max_new_tokens=9, chooser=Clasp(len(idle)))
    assert found.accepted == found.drafted == 18


@torch.no_grad()
@pytest.mark.parametrize("skipped", [0, 1, 2, 4])
@pytest.mark.parametrize("executor", ["packed", "masked"])
def test_text_is_that_of_greedy_decoding(executor, skipped, shared_backbone, prompts):
    """T-LE2: rows leave out layers of their own, end at different times and leave the batch."""
    model, (ids, mask) = clasp_model(shared_backbone("llama")), prompts
    model.executor = executor
    free = new_tokens(model, ids, mask, max_new_tokens=NEW)
    end = free[1][3]
    expected = [row[: row.index(end) + 1] if end in row else row for row in free]
    settings = {"draft_dial": skipped, "drafts": 3, "max_new_tokens": NEW, "eos_token_ids": [end]}
    found = self_speculate(model, ids, mask, **settings, chooser=Clasp(skipped))
    assert found.tokens == expected and len({*map(len, expected)}) > 1
    for row in range(3):
        alone = self_speculate(model, ids[row : row + 1], mask[row : row + 1], **settings, chooser=Clasp(skipped))
        assert alone.tokens == [expected[row]]
        assert alone.rounds == [found.rounds[row]]
    drafting = found.books["draft"].counts()["decode"]
    assert sum(layer[0] for layer in drafting["executed"]) == (4 - skipped) * found.drafted


@torch.no_grad()
def test_choosing_is_booked(shared_backbone, prompts):
    """As many candidates as the programme knows at each layer, next to the keys that are cached, and their cosines."""
    model, (ids, mask) = clasp_model(shared_backbone("llama")), prompts
    backbone, costs = model.backbone, model.backbone.costs
    cache = model(ids, mask, use_cache=True).past_key_values
    ledger = Ledger(costs)
    best_layer_sets(backbone, cache, ids[:, -1], 2, ledger)
    expected = 0.0
    for layer, (run, compared) in enumerate([(1, 2), (2, 3), (3, 3), (3, 3)]):
        keys = cache.stores[layer].table.used + run
        linear = costs.attn_q_o[layer] + costs.attn_kv[layer] + costs.mlp[layer]
        expected += 3 * (run * (linear + keys * costs.pair[layer]) + 2 * compared * cosine_macs(backbone.hidden_size))
    assert ledger.total_macs() == pytest.approx(expected, rel=1e-12)
    assert ledger.weight_bytes("decode") == float((costs.attention_bytes + costs.mlp_bytes).sum())
    assert ledger.tokens == {"prefill": 0, "decode": 0}


def test_rows_leave_out_layers_of_their_own(shared_backbone, prompts):
    """T-SV1: what every row runs is said as the verifier says it, so that both can share it."""
    model, (ids, _) = clasp_model(shared_backbone("llama")), prompts
    model.method.skipped = torch.tensor([[False, False, True, False], [False, False, False, True]])
    model.dial = 1
    seen = []
    model.method.listeners.append(lambda view, decision: seen.append(decision))
    model(ids[:2])
    assert seen[0] is seen[1] is EXECUTE_ALL
    assert [decision.keep[:, 0].tolist() for decision in seen[2:]] == [[False, True], [True, False]]
