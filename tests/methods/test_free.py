"""FREE against its formulas: losses, matching of layers, waiting tokens, the adaptive threshold.

What comes out of the exit: test_early_exits.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from adaptive_bench.methods.free import NEVER, align, beta_mixture_threshold, dynamic_distillation

LAYERS, SHALLOW, LENGTH, PROMPT = 4, 2, 12, 6


def _entropy(backbone, ids):
    return functional.cross_entropy(backbone(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def test_loss_weights(make_model, make_backbone, truncated, random_text):
    """T-FR1: with L_S = 4 of 16 layers the cross entropies weigh 0.2 and 0.8; distillation adds half of itself."""
    backbone = make_backbone("llama", num_hidden_layers=16)
    model = make_model("free", backbone=backbone).train()
    assert model.method.shallow == 4
    ids = random_text(2, 10)
    with torch.no_grad():
        loss = float(model(ids, labels=ids).loss)
        deep, shallow = float(_entropy(backbone, ids)), float(_entropy(truncated(backbone, 4), ids))
    terms = model.loss_terms
    assert (terms["ce"], terms["shallow"]) == (pytest.approx(deep, rel=1e-5), pytest.approx(shallow, rel=1e-5))
    assert loss == pytest.approx(0.2 * shallow + 0.8 * deep + 0.5 * terms["distillation"], rel=1e-5)


def test_distillation_compares_normed_states_where_the_answer_is_written(make_model, make_backbone):
    """Sections 3.2, 8.3: states after the shared final norm, of the decoder's tokens there: here of those whose next
    token is in the answer, the prompt's last one included and the text's last one not.
    """
    backbone = make_backbone("llama", num_hidden_layers=4)
    model = make_model("free", backbone=backbone).train()
    ids = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = ids.clone()
        labels[:, :4] = -100
        model(ids, labels=labels)
        *states, last = backbone(ids, output_hidden_states=True).hidden_states[1:]
        normed = [state[:, 3:8] for state in (*map(backbone.model.norm, states), last)]
        expected = dynamic_distillation(normed[:2], [normed[1], normed[3]])
    assert model.method.teachers() == [1, 3]
    assert model.loss_terms["distillation"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("layers", "shallow", "teachers"),
    [(24, 6, [3, 7, 11, 15, 19, 23]), (12, 3, [3, 7, 11]), (24, 4, [5, 11, 17, 23])],
)
def test_teachers_are_evenly_spaced(make_model, make_backbone, layers, shallow, teachers):
    model = make_model(f"free[shallow_layers={shallow}]", backbone=make_backbone("llama", num_hidden_layers=layers))
    assert model.method.teachers() == teachers


def test_teachers_get_no_gradient():
    """T-FR2: distillation moves the students only."""
    students, teachers = torch.randn(2, 3, 5, 8, requires_grad=True), torch.randn(2, 3, 5, 8, requires_grad=True)
    dynamic_distillation(list(students), list(teachers)).backward()
    assert teachers.grad is None
    assert float(students.grad.abs().sum()) > 0


@pytest.mark.parametrize("seed", range(20))
def test_matching_rises_strictly(seed):
    """T-FR3: deeper teachers have deeper students; the deepest teacher takes its closest one."""
    errors = torch.from_numpy(np.random.default_rng(seed).random((6, 6)))
    students = align(errors).tolist()
    above = [student for student in students if student]  # those left without one take the first
    assert above == sorted(set(above)) and students == [0] * (6 - len(above)) + above
    assert students[-1] == int(errors[5].argmin())


def test_matching_takes_the_closest_student_below():
    """T-FR3: by hand; the shallowest teacher finds no student left and takes the first, as in the released code."""
    assert align(torch.tensor([[0.1, 9.0, 0.0], [0.3, 0.2, 0.0], [9.0, 0.1, 0.5]])).tolist() == [0, 0, 1]
    assert align(torch.tensor([[0.1, 9.0, 0.0], [0.3, 0.2, 0.0], [9.0, 0.1, 0.0]])).tolist() == [0, 1, 2]


def test_teachers_without_a_student_are_held_against_the_first():
    students = [torch.zeros(1, 4), torch.full((1, 4), 9.0)]
    teachers = [torch.full((1, 4), 5.0), torch.full((1, 4), 1.0)]  # the deep one takes the shallow student
    assert float(dynamic_distillation(students, teachers)) == pytest.approx((25.0 + 1.0) / 2)


def _decode(model, ids, dials):
    """Feed a prompt and then token by token, each at its own dial; returns logits [B, T, V] and the cache."""
    output = model(ids[:, :PROMPT], use_cache=True)
    logits = []
    for at, dial in enumerate(dials):
        model.method.value = dial  # one report of all
        token = ids[:, PROMPT + at : PROMPT + at + 1]
        output = model(token, use_cache=True, past_key_values=output.past_key_values)
        logits.append(output.logits[:, 0])
    return torch.stack(logits, dim=1), output.past_key_values


@torch.no_grad()
def test_a_flush_gives_exact_deep_keys_and_values(shared_model, ids):
    """T-FR5: tokens that waited get the deep K,V of a full-depth run; those that still wait have none."""
    model = shared_model("free@paper")
    dials = [-1.0, -1.0, NEVER, -1.0, NEVER, -1.0]
    logits, cache = _decode(model, ids, dials)
    tokens = ids[:, : PROMPT + len(dials)]
    full = model.backbone_model(tokens, use_cache=True)
    for layer in range(SHALLOW, LAYERS):
        store, exact = cache.stores[layer], full.past_key_values.layers[layer]
        for row in range(ids.shape[0]):
            positions = store.table.visible()[row]
            slots = positions >= 0
            assert sorted(positions[slots].tolist()) == list(range(tokens.shape[1] - 1))  # the last one waits
            for stored, dense in zip(store.view(), (exact.keys, exact.values), strict=True):
                torch.testing.assert_close(stored[row][:, slots], dense[row][:, positions[slots]], atol=1e-4, rtol=1e-4)
    stayed = torch.tensor([dial > 1 for dial in dials])
    torch.testing.assert_close(logits[:, stayed], full.logits[:, PROMPT:][:, stayed], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_waiting_tokens_are_charged_when_they_go_deep(shared_model, ids):
    """T-FR7: nothing deep is booked while tokens wait; the flush books all of them."""
    model = shared_model("free@paper")
    rows, deep = ids.shape[0], slice(SHALLOW, LAYERS)

    def executed(dials):
        model.dial = NEVER
        model.reset_ledger()
        _decode(model, ids, dials)
        decode = model.compute_report()["counts"]["decode"]
        return np.array(decode["executed"])[deep], np.array(decode["macs"])[deep, :5]  # core; the probe is no deep work

    waiting, macs = executed([-1.0] * 3)
    assert not waiting.any()
    assert not macs.any()
    flushed, macs = executed([-1.0, -1.0, -1.0, NEVER])
    assert (flushed == 4 * rows).all()
    mlp = model.backbone.costs.mlp[SHALLOW]
    assert macs[:, 3].tolist() == [4 * rows * mlp] * (LAYERS - SHALLOW)
    assert model.compute_report()["saved"]["tokens"] == 0.0


def test_adaptive_threshold():
    """T-FR8: within [0.3, 0.9], the same for the same history, low where agreement comes early, high where late."""
    generator = np.random.default_rng(0)
    confidences = generator.random(300)
    found = []
    for bar in (0.0, 0.2, 0.6, 1.1):
        threshold = beta_mixture_threshold(confidences, confidences > bar)
        assert threshold == beta_mixture_threshold(confidences, confidences > bar)
        assert 0.3 <= threshold <= 0.9
        found.append(threshold)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (pytest.approx(0.3), pytest.approx(0.9))
    assert found[1] < found[2]


@torch.no_grad()
def test_state_confidence_is_a_cosine_of_neighbours(shared_model, ids, answer, writing, watch):
    """`confidence=state`: leaves where the cosine of the states around layer L_S exceeds the threshold."""
    model = shared_model("free[confidence=state]")
    states = model.backbone_model(ids, output_hidden_states=True).hidden_states
    cosine = functional.cosine_similarity(states[SHALLOW], states[SHALLOW - 1], dim=-1)
    model.dial = float(cosine[answer].median())
    with watch(model) as watched:
        model(ids, continuation_mask=answer)
    deepest = list(watched.keep.values())[-1][0]
    assert torch.equal(deepest, ~(writing & (cosine > model.dial)))


@torch.no_grad()
def test_the_adaptive_threshold_is_fitted_where_the_answer_is_written(make_model, truncated, ids, answer):
    """T-FR8: of tokens whose next one is in the answer, the shallow model's confidence, and whether the deep one says
    the same; padding on the left changes nothing.
    """
    model = make_model("free").eval()
    deep, shallow = model.backbone_model(ids).logits, truncated(model.backbone_model, SHALLOW)(ids).logits
    written = slice(PROMPT - 1, LENGTH - 1)
    top = shallow[:, written].softmax(-1).topk(2).values
    gaps = (top[..., 0] - top[..., 1]).flatten()
    agrees = (shallow.argmax(-1) == deep.argmax(-1))[:, written].flatten()
    expected = beta_mixture_threshold(gaps.tolist(), agrees.tolist())
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": answer}
    padded = {name: functional.pad(value, (3, 0)) for name, value in batch.items()}
    for text in (batch, padded):
        assert model.method.adaptive_threshold(model.backbone, [text]) == pytest.approx(expected)
    model.dial = expected  # it is a value of the dial
