"""What each bucket of the ledger holds, by hand-made counts (methods.md 2.2), and against PyTorch's flop counter."""

import pytest
import torch
from counted import turned
from covering import each_once
from pretended_accelerator import DEVICE, pretended
from torch.utils.flop_counter import FlopCounterMode

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


# The ledger against PyTorch's flop counter (X8): core + overhead + waste is what was really executed. With eager
# attention, since the counter reads fused CPU attention as nothing. The rotary tables' matrix product, which is no
# branch's work, is the only thing the counter sees and the ledger does not: far below a thousandth.


SPECS = [
    "dense",
    *(f"random_skip[kv={kv}]" for kv in ("recompute", "copy_below", "evict")),
    "gateskip",
    "gateskip[shape=scalar,kv=evict]",
    "gateskip@paper",
    "mod",
    "mod@paper",
]
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "granite", "olmo2", "phi3", "smollm3")


def assert_ledger_is_exact(model, run):
    model.reset_ledger()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    assert 2 * model.ledger.total_macs() == pytest.approx(counter.get_total_flops(), rel=1e-3)


@pytest.mark.parametrize(("spec", "family"), each_once(SPECS, FAMILIES))
def test_prefill_and_decode(spec, family, shared_model, random_text):
    """X8: a left-padded prompt, a right-padded one, and generation in which rows finish, skipping nothing or a lot."""
    model, ids = shared_model(spec, family, "eager"), random_text(3, 20)
    left = torch.arange(20).expand(3, 20) >= torch.tensor([[0], [7], [19]])
    for saved_tokens in (0.0, 0.3):
        turned(model, saved_tokens)
        assert_ledger_is_exact(model, lambda: model(ids))
        assert_ledger_is_exact(model, lambda: model(ids, left.flip(1), logits_to_keep=torch.tensor([0, 5, 9])))
        assert_ledger_is_exact(
            model, lambda: new_tokens(model, ids, left, max_new_tokens=6, stop=lambda new: new[-1] % 5 == 0)
        )


@pytest.mark.parametrize("spec", SPECS)
def test_masked_execution_is_booked_as_waste(spec, shared_model, random_text):
    """X8: the masked executor runs everything; the ledger says so, and that the saving is not a real one."""
    model, ids = shared_model(spec, "llama", "eager"), random_text(3, 20)
    mask = torch.arange(20).expand(3, 20) >= torch.tensor([[0], [7], [19]])
    model.executor = "masked"
    turned(model, 0.3)
    assert_ledger_is_exact(model, lambda: new_tokens(model, ids, mask, max_new_tokens=4))
    report = model.compute_report()
    assert report["macs"]["waste.dense"] > 0
    assert report["saved"]["executed"] <= 0


@pytest.mark.parametrize("spec", [*SPECS, "skiplayer", "calm", "calm[confidence=classifier]", "free", "free@paper"])
def test_rows_that_run_for_a_fixed_shape_are_booked_as_waste(spec, make_model, make_backbone, random_text):
    """On an accelerator every row goes through a branch that is decided upon from hidden states."""
    model, ids = make_model(spec, backbone=make_backbone("llama", "eager")), random_text(3, 9)
    left = torch.arange(9).expand(3, 9) >= torch.tensor([[0], [4], [7]])
    turned(model, 0.3)
    with pretended():
        model.to(DEVICE)
        ids, left = ids.to(DEVICE), left.to(DEVICE)
        assert_ledger_is_exact(model, lambda: new_tokens(model, ids, left, max_new_tokens=5))


def test_packed_execution_wastes_little(shared_backbone, make_pattern, run_pattern, random_text):
    """X8: the packed executor wastes nothing but padding of ragged rows and keys behind the causal mask."""
    backbone, ids = shared_backbone("llama", "eager"), random_text(1, 20)
    pattern = make_pattern(1, 20, 4, share=0.5)
    model = run_pattern(backbone, pattern)
    assert_ledger_is_exact(model, lambda: model(ids))
    pairs = sum(int((~torch.ones(20, 20).tril().bool())[pattern.keep[0, 2 * layer]].sum()) for layer in range(4))
    assert model.compute_report()["macs"]["waste.dense"] == pairs * 2 * 32
