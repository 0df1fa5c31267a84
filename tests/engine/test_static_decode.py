"""Steps that are recorded and repeated are those of ordinary decoding: tokens, logits and books.

Without a recorder the step runs every time; `Tape` records kernels and repeats them, as a CUDA graph would.
"""

import pytest
import torch
from counted import assert_same, books, turned
from covering import KINDS
from kernel_tape import Tape
from pretended_accelerator import DEVICE, pretended
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench import registry
from adaptive_bench.engine.ledger import Work
from adaptive_bench.errors import UsageError
from adaptive_bench.method import EXECUTE_ALL
from adaptive_bench.model.generation import generate_queue, new_tokens
from adaptive_bench.model.static_decode import StaticSteps

NAMES = registry.names("methods")
VARIANTS = (
    "calm[confidence=state]", "calm[confidence=classifier]", "calm[confidence=convergence]", "calm[decay=paper]",
    "free[kv=defer]",
    "gateskip[skip_unit=layer]", "gateskip[kv=copy_below]", "gateskip[kv=evict]", "gateskip[rule=text]@paper",
    "mod[route_by=predictor]", "random_skip[kv=copy_below]", "random_skip[kv=evict]", "position_skip[kv=evict]",
    "gateskip[compensate=scale]", "static_depth[compensate=scale]", "static_depth[rule=bi]",
)  # fmt: skip
SPECS = (*NAMES, "free@paper", "gateskip@paper", "mod@paper", "router_tuned_mod@paper", *VARIANTS)
NOT_REPEATABLE = {"free@paper", "free[kv=defer]"}
REPEATABLE = [spec for spec in SPECS if spec not in NOT_REPEATABLE]
LENGTHS = (9, 3, 7, 7, 1, 12)


def prompts_of(text):
    return [text[row, :length].tolist() for row, length in enumerate(LENGTHS)]


def stop(new):
    return sum(new) % 11 == 0


def steps_of(model, rows, recorder=None):
    return StaticSteps(model, rows=rows, capacity=28, recorder=recorder, least_reach=8)


def two_ways(model, text, rows, recorder=None):
    """Texts and books of ordinary and of static decoding, and the steps."""
    how = {"rows": rows, "max_new_tokens": 12, "stop": stop, "eos_token_ids": (7,)}
    wanted = generate_queue(model, prompts_of(text), **how), books(model)
    steps = steps_of(model, rows, recorder)
    found = generate_queue(model, prompts_of(text), steps=steps, **how), books(model)
    return wanted, found, steps


@pytest.mark.parametrize("spec", REPEATABLE)
@torch.no_grad()
def test_texts_and_books_are_those_of_ordinary_decoding(spec, make_model, make_backbone, random_text):
    """With refill (where a text does not depend on the others), run every time and repeated from a tape."""
    model = turned(make_model(spec, backbone=make_backbone("llama", num_hidden_layers=3)))
    text = random_text(len(LENGTHS), max(LENGTHS))
    ways = [(Tape(), 3), *([(None, 3), (Tape(), 1)] if spec in KINDS else [])]
    for recorder, rows in ways:
        rows = rows if model.spec.semantics == "bench" else len(LENGTHS)
        (wanted, wanted_books), (found, found_books), steps = two_ways(model, text, rows, recorder)
        assert found == wanted
        assert_same(found_books, wanted_books, rtol=0)
        assert bool(steps.recorded) == (recorder is not None)
        assert (steps.not_recorded is None) == (recorder is not None)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", ["dense", "gateskip[kv=evict]"])
@torch.no_grad()
def test_half_the_digits(spec, kind, make_model, make_backbone, random_text):
    """In bf16 and fp16 a static step is as far from fp32 as an ordinary one: another order of the same sums."""
    model, ids = make_model(spec, backbone=make_backbone("llama")), random_text(3, 12)
    logits = {}
    for name, dtype, static in (("exact", torch.float32, False), ("plain", kind, False), ("static", kind, True)):
        model.to(dtype)
        cache = model(ids[:, :6], use_cache=True).past_key_values
        steps = steps_of(model, 3, Tape())
        steps.join(cache)
        logits[name] = torch.stack(
            [
                steps.step(ids[:, place])
                if static
                else model(ids[:, place : place + 1], past_key_values=cache, use_cache=True).logits
                for place in range(6, 12)
            ]
        )
        assert logits[name].dtype == dtype
    off = {name: float((logits[name].float() - logits["exact"]).abs().median()) for name in ("plain", "static")}
    assert 0 < off["static"] <= 1.5 * off["plain"]


@pytest.mark.parametrize("spec", REPEATABLE)
def test_a_step_reads_nothing(spec, make_model, make_backbone, random_text):
    """Whatever is decided stays on the device, where the method says that its steps can be repeated."""
    model, ids = turned(make_model(spec, backbone=make_backbone("llama", num_hidden_layers=3))), random_text(2, 12)
    with torch.no_grad(), pretended() as accelerator:
        model.to(DEVICE)
        steps = steps_of(model, 2)
        steps.join(model(ids[:, :6].to(DEVICE), use_cache=True).past_key_values)
        steps.step(ids[:, 6].to(DEVICE))
        accelerator.reads.clear()
        for place in range(7, 12):
            steps.step(ids[:, place].to(DEVICE))
        assert accelerator.reads == []


@pytest.mark.parametrize("spec", sorted(NOT_REPEATABLE))
def test_what_cannot_be_repeated_is_refused(spec, make_model, make_backbone):
    with pytest.raises(UsageError, match=r"no step that can be repeated\. Decode without StaticSteps"):
        steps_of(turned(make_model(spec, backbone=make_backbone("llama"))), 2)


def test_so_is_whatever_has_to_be_asked_every_time(make_model, make_backbone, random_text):
    model, ids = turned(make_model("gateskip", backbone=make_backbone("llama"))), random_text(2, 7)
    steps = steps_of(model, 2)
    with torch.no_grad():
        steps.join(model(ids[:, :6], use_cache=True).past_key_values)
    model.method.listeners.append(lambda view, decision: None)
    with pytest.raises(UsageError, match="neither listeners"):
        steps.step(ids[:, 6])
    model.method.listeners.clear()
    with pytest.raises(UsageError, match=r"eval\(\) mode"):
        steps_of(model.train(), 2)


@torch.no_grad()
def test_a_step_that_cannot_be_recorded_says_what_to_do(make_model, make_backbone, random_text):
    class Refusing(Tape):
        def record(self, run):
            raise RuntimeError("operation not permitted when stream is capturing")

    model, ids = make_model("dense", backbone=make_backbone("llama")), random_text(2, 8)
    steps = steps_of(model, 2, Refusing())
    steps.join(model(ids, use_cache=True).past_key_values)
    steps.step(ids[:, 0])
    with pytest.raises(UsageError, match=r"got from Dense: operation not permitted.* set repeatable to False"):
        steps.step(ids[:, 0])


@torch.no_grad()
def test_there_has_to_be_room(make_model, make_backbone, random_text):
    model, ids = make_model("dense", backbone=make_backbone("llama")), random_text(3, 8)
    steps = StaticSteps(model, rows=2, capacity=9)
    with pytest.raises(UsageError, match="holds 2 rows of 9 slots under the KV policy recompute, got 3 rows of 8"):
        steps.join(model(ids, use_cache=True).past_key_values)
    steps.join(model(ids[:2], use_cache=True).past_key_values)
    steps.step(ids[:2, 0])
    with pytest.raises(UsageError, match="room for 9 tokens, got 10"):
        steps.step(ids[:2, 0])


@pytest.mark.parametrize("spec", ["dense", "gateskip[kv=evict]", "mod", "random_skip[kv=copy_below]", "static_depth"])
@torch.no_grad()
def test_the_ledger_holds_what_was_executed(spec, make_model, make_backbone, random_text):
    """As the dispatcher counts it, padded slots included: that is what the padding costs."""
    backbone = make_backbone("llama", "eager", num_hidden_layers=3)  # the counter sees no fused attention on a CPU
    model, ids = turned(make_model(spec, backbone=backbone)), random_text(3, 12)
    steps = steps_of(model, 3)
    steps.join(model(ids[:, :6], use_cache=True).past_key_values)
    model.reset_ledger()
    with FlopCounterMode(display=False) as counter:
        for place in range(6, 12):
            steps.step(ids[:, place])
    assert 2 * model.ledger.total_macs() == pytest.approx(counter.get_total_flops(), rel=1e-3)
    if spec == "dense":  # 3 rows, 2 steps of 8 slots and 4 of 16
        assert books(model, wasted=True)["decode"]["work"][:, Work.PAIRS].tolist() == [3 * (2 * 8 + 4 * 16)] * 3


@torch.no_grad()
def test_recorded_anew_when_dial_thresholds_or_weights_change(make_model, make_backbone, random_text):
    model = turned(make_model("gateskip", backbone=make_backbone("llama")))
    ids, tape = random_text(6, 16, seed=3), Tape()
    steps = steps_of(model, 2, tape)

    def same():
        how = {"max_new_tokens": 6, "attention_mask": torch.ones_like(ids[:2, :4])}
        for _ in range(2):  # what comes once is not recorded
            assert new_tokens(model, ids[:2, :4], steps=steps, **how) == new_tokens(model, ids[:2, :4], **how)
        return len(steps.recorded)

    counts = [same(), same()]
    turned(model, 0.4)
    counts.append(same())
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.calibrate([batch | {"continuation_mask": torch.arange(16).expand_as(ids) >= 8}], [0.4])
    counts.append(same())
    assert counts[0] == counts[1] < counts[2] < counts[3]
    model.dial = model.method.dial.skip_nothing  # thresholds do not outlive weights
    counts.append(same())
    down = model.backbone_model.model.layers[0].mlp.down_proj
    down.weight = torch.nn.Parameter(-2 * down.weight)
    assert same() > counts[-1]


@torch.no_grad()
def test_a_tape_tells_a_value_that_was_fixed_when_it_was_recorded(make_model, make_backbone, random_text):
    """What these tests can see: a method that counts calls in Python decides on a tape as it did when recorded."""
    model, calls = make_model("random_skip", backbone=make_backbone("llama")), []

    def decide_ahead(call):
        calls.append(call)
        return [EXECUTE_ALL if len(calls) % 3 else type(EXECUTE_ALL).skip_all(call.valid)] * 8

    model.method.decide_ahead = decide_ahead
    texts = []
    for steps in (None, steps_of(model, 2, Tape())):
        calls.clear()
        texts.append(generate_queue(model, [[5, 6], [7, 8]], rows=2, max_new_tokens=12, steps=steps))
    assert texts[0] != texts[1]
