"""What each bucket of the ledger holds, by hand-made counts (methods.md 2.2)."""

import pytest
import torch
from counted import turned

from adaptive_bench.model.generation import new_tokens

Q_O, K_V, MLP, PAIR, HEAD, GATE = 32 * 32 * 2, 32 * 16 * 2, 3 * 32 * 48, 2 * 32, 32 * 97, 32 * 32  # tiny Llama
LAYERS = 4


@torch.no_grad()
def test_dense_buckets_by_hand(shared_model, random_text):
    """X8: projections, pairs under the causal triangle, MLP, head of 5 + 3 real tokens; padding in no core bucket."""
    model, ids = shared_model("dense"), random_text(2, 5)
    model(ids, torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]), logits_to_keep=1)
    macs = model.compute_report()["macs"]
    assert macs["core.attn_q_o"] == LAYERS * 8 * Q_O
    assert macs["core.attn_kv"] == LAYERS * 8 * K_V
    assert macs["core.attn_mix"] == LAYERS * (15 + 6) * PAIR
    assert macs["core.mlp"] == LAYERS * 8 * MLP
    assert macs["core.head"] == 2 * HEAD
    assert macs["overhead.decision"] == macs["overhead.kv_repair"] == macs["overhead.adapter"] == 0


@torch.no_grad()
def test_sliding_window_bounds_the_pairs(shared_model, random_text):
    """X8: a query in a window of 6 is booked 6 keys at most."""
    model = shared_model("dense", "mistral")
    model(random_text(1, 10))
    assert model.compute_report()["macs"]["core.attn_mix"] == LAYERS * (1 + 2 + 3 + 4 + 5 + 6 * 5) * PAIR


@pytest.mark.parametrize("kv", ["recompute", "copy_below", "evict"])
@torch.no_grad()
def test_skipping_by_hand(kv, shared_backbone, make_pattern, run_pattern, random_text):
    """X8, X9: what one pattern costs under each KV policy, in both executors."""
    pattern = make_pattern(1, 4, LAYERS, kv=kv, share=1.0, scaled=False)
    pattern.keep[0, 2, 1:3] = False  # attention of layer 1 keeps tokens 0 and 3
    pattern.keep[0, 1, :3] = False  # the MLP of layer 0 keeps token 3
    for executor in ("packed", "masked"):
        model = run_pattern(shared_backbone("llama"), pattern)
        model.executor = executor
        model(random_text(1, 4), logits_to_keep=1)
        report = model.compute_report()
        macs = report["macs"]
        assert macs["core.attn_q_o"] == (3 * 4 + 2) * Q_O
        assert macs["core.attn_kv"] == (3 * 4 + 2) * K_V
        assert macs["core.attn_mix"] == (3 * 10 + (1 + 2 if kv == "evict" else 1 + 4)) * PAIR
        assert macs["core.mlp"] == (3 * 4 + 1) * MLP
        assert macs["overhead.kv_repair"] == (2 * K_V if kv == "recompute" else 0)
        executed = {(site["layer"], site["branch"]): site["executed"] for site in report["sites"]}
        assert executed.pop((1, "attention")) == 0.5 and executed.pop((0, "mlp")) == 0.25
        assert set(executed.values()) == {1.0}
        assert report["saved"]["tokens"] == pytest.approx(5 / 32)


@pytest.mark.parametrize(("spec", "per_token"), [("gateskip", GATE), ("gateskip[shape=scalar]", 32)])
@pytest.mark.parametrize("executor", ["packed", "masked"])
def test_gate_macs_are_exact(spec, per_token, executor, shared_model, random_text):
    """T-GS15: `overhead.decision` is the gates of real tokens, at every dial; gates of padding are waste."""
    model, ids = shared_model(spec), random_text(2, 6)
    mask = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
    model.executor = executor
    for saved_tokens in (0.0, 0.3):
        turned(model, saved_tokens)
        model.reset_ledger()
        new = new_tokens(model, ids, mask, max_new_tokens=4)
        tokens = 10 + sum(len(row) - 1 for row in new)  # the last new token is never fed
        report = model.compute_report()
        assert report["macs"]["overhead.decision"] == tokens * 2 * LAYERS * per_token
        assert sum(report["counts"][phase]["tokens"] for phase in ("prefill", "decode")) == tokens


@pytest.mark.parametrize("spec", ["random_skip", "gateskip", "gateskip@paper", "mod", "random_skip[kv=copy_below]"])
@torch.no_grad()
def test_invariants(spec, shared_model, random_text):
    """X8: buckets sum, S_net <= S_core, the dense reference does not depend on the dial or the method."""
    dense = shared_model("dense")
    dense(random_text(2, 12), logits_to_keep=1)
    model = shared_model(spec)
    for saved_tokens in (0.0, 0.1, 0.3):
        turned(model, saved_tokens)
        model.reset_ledger()
        model(random_text(2, 12), logits_to_keep=1)
        report, saved = model.compute_report(), model.compute_report()["saved"]
        assert sum(report["macs"].values()) == model.ledger.total_macs()
        assert all(macs >= 0 for macs in report["macs"].values())
        assert saved["executed"] <= saved["net"] <= saved["core"]
        assert report["counts"]["prefill"]["dense_macs"] == dense.compute_report()["counts"]["prefill"]["dense_macs"]


@pytest.mark.parametrize("asked_for", [1, 3])
@torch.no_grad()
def test_leaving_out_layers_saves_their_share_of_the_layers_whatever_the_head_costs(
    asked_for, shared_model, random_text
):
    """With the head for every token or for one; of all FLOPs it is less, by the head's share of them."""
    model = shared_model("static_depth")
    for logits in (0, 1):
        model.dial = asked_for
        model.reset_ledger()
        model(random_text(2, 12), logits_to_keep=logits)
        report = model.compute_report()
        saved, macs = report["saved"], report["macs"]
        assert saved["layers"] == pytest.approx(asked_for / LAYERS, abs=1e-12)
        layers = sum(report["counts"]["prefill"]["dense_macs"][:-1])
        assert saved["net"] == pytest.approx(asked_for / LAYERS * layers / (layers + macs["core.head"]))
        assert saved["layers"] == report["prefill"]["layers"] and report["decode"]["layers"] is None


def test_prefill_and_decode_are_apart(shared_model, random_text):
    """X8: each phase adds up by itself; one prefill call and many decode calls are pooled by work, not by calls."""
    model = shared_model("random_skip")
    turned(model, 0.4)
    new_tokens(model, random_text(2, 9), max_new_tokens=5)
    report, counts = model.compute_report(), model.compute_report()["counts"]
    assert counts["prefill"]["calls"] == 1 and counts["decode"]["calls"] == 4
    assert counts["prefill"]["tokens"] == 18 and counts["decode"]["tokens"] == 8
    skipped = {p: sum(map(sum, counts[p]["eligible"])) - sum(map(sum, counts[p]["executed"])) for p in counts}
    assert report["saved"]["tokens"] == pytest.approx(sum(skipped.values()) / (26 * 2 * LAYERS))
    assert report["decode"]["tokens"] == pytest.approx(skipped["decode"] / (8 * 2 * LAYERS))


def test_ledgers_add_up(shared_model, random_text):
    """X8: adding a ledger's own counts doubles every sum and changes no share; reset forgets."""
    model = shared_model("gateskip")
    turned(model)
    new_tokens(model, random_text(2, 6), max_new_tokens=3)
    before, total = model.compute_report(), model.ledger.total_macs()
    model.ledger.add(before["counts"])
    after = model.compute_report()
    assert model.ledger.total_macs() == 2 * total
    assert after["saved"] == pytest.approx(before["saved"]) and after["sites"] == before["sites"]
    assert after["counts"]["decode"]["calls"] == 2 * before["counts"]["decode"]["calls"]
    model.reset_ledger()
    assert model.ledger.total_macs() == 0 and model.compute_report()["saved"]["net"] is None


@pytest.mark.parametrize(("kv", "read"), [("recompute", K_V), ("evict", 0)])
def test_weights_are_read_unless_every_token_skips(kv, read, shared_backbone, make_pattern, run_pattern, random_text):
    """Methods.md 2.2, 2.4: a branch's weights count as read once per call in which any token executes it; where nobody
    attends, repairing K,V still reads the k and v projections.
    """
    pattern = make_pattern(2, 4, LAYERS, kv=kv, share=1.0, scaled=False)
    pattern.keep[:, 2] = False  # nobody runs the attention of layer 1
    pattern.keep[:, 3] = False  # nor its MLP
    pattern.keep[0, 5] = False  # one row skips the MLP of layer 2
    for executor in ("packed", "masked"):
        model = run_pattern(shared_backbone("llama"), pattern)
        model.executor = executor
        model(random_text(2, 4))
        saved = model.compute_report()["saved"]["weight_bytes"]
        assert saved == pytest.approx((Q_O + K_V - read + MLP) / (LAYERS * (Q_O + K_V + MLP) + HEAD))


@pytest.mark.parametrize(
    ("spec", "own"),
    [("gateskip", 2 * LAYERS * GATE), ("mod@paper", 2 * (32 + 32 * 16 + 16)), ("skiplayer", LAYERS * 64)],
)
def test_a_methods_own_weights_are_read(spec, own, shared_model, random_text):
    """Methods.md 2.2: gates, routers and predictors are read once per decoding call, at skip-nothing as well."""
    model, ids = shared_model(spec), random_text(3, 7)
    output = model(ids[:, :6], use_cache=True)
    model.reset_ledger()
    model(ids[:, 6:], past_key_values=output.past_key_values)
    counts = model.compute_report()["counts"]["decode"]
    assert counts["dense_weight_bytes"] == 4 * (LAYERS * (Q_O + K_V + MLP) + HEAD)
    assert counts["weight_bytes"] == counts["dense_weight_bytes"] + 4 * own


@pytest.mark.parametrize(("dial", "heads", "layers"), [(0.0, 1, 1), (1.0, LAYERS, LAYERS)])
def test_a_probe_reads_the_head(dial, heads, layers, shared_model, random_text):
    """CALM: the head is read at every exit that is probed; a probe that lets all tokens go is the final reading."""
    model, ids = shared_model("calm"), random_text(3, 7)
    output = model(ids[:, :6], use_cache=True)
    model.dial = dial
    model.reset_ledger()
    model(ids[:, 6:], past_key_values=output.past_key_values)
    repair = (LAYERS - layers) * K_V
    read = heads * HEAD + layers * (Q_O + K_V + MLP) + repair
    assert model.compute_report()["counts"]["decode"]["weight_bytes"] == 4 * read


def test_training_is_not_booked(make_model, make_backbone, random_text):
    """The ledger counts evaluation; calls in `train()` leave it empty, and calibration leaves it as it was."""
    model = make_model("gateskip", backbone=make_backbone("llama"))
    assert model.ledger.total_macs() == 0  # although it was calibrated
    model.begin_step(1, 10)
    model.train()(random_text(2, 6), labels=random_text(2, 6)).loss.backward()
    assert model.ledger.total_macs() == 0
