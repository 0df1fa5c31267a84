"""Building an `AdaptiveModel`, turning its dial, and what it refuses."""

import json
import math
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from transformers import LlamaForSequenceClassification, LlamaModel

from adaptive_bench import check_specs, plan, run
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.subject import VOCABULARY

SPECS = ["dense", "random_skip", "gateskip", "mod"]


@pytest.mark.parametrize("spec", SPECS)
def test_dial_stays_in_range(spec, shared_model):
    """Issue 2, item 8: a value out of range is refused with the range, and the dial stays as it was."""
    model = shared_model(spec)
    dial = model.method.dial
    for value in (dial.minimum - 0.01, dial.maximum + 0.01, math.nan, math.inf):
        with pytest.raises(UsageError, match=rf"{dial.name}.*got {value!r}"):
            model.dial = value
    assert model.dial == dial.skip_nothing
    for value in (dial.minimum, dial.maximum):
        model.dial = value
        assert model.dial == value


def test_largest_saving(shared_model):
    """MoD routes half of the blocks: it cannot skip more than their share."""
    largest = {spec: shared_model(spec).method.max_saved_tokens for spec in SPECS}
    assert largest == pytest.approx({"dense": 0.0, "random_skip": 1.0, "gateskip": 0.95, "mod": 0.475})


def test_executor(shared_model):
    """`masked` to train, `packed` to evaluate, unless set."""
    model = shared_model("dense")
    assert model.executor == "packed" and model.train().executor == "masked"
    model.executor = "packed"
    assert model.executor == "packed"
    with pytest.raises(UsageError, match="turbo"):
        model.executor = "turbo"
    model.executor = None
    assert model.eval().executor == "packed"


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
@pytest.mark.parametrize("spec", ["gateskip", "flexidepth", "d_llm"])
def test_what_a_method_adds_is_fp32_whatever_new_tensors_are(spec, default, make_backbone):
    backbone = make_backbone("llama")
    torch.set_default_dtype(default)
    try:
        model = AdaptiveModel.build(backbone, spec).eval()
        assert torch.get_default_dtype() == default
        assert model(torch.tensor([[1, 2, 3]])).logits.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in model.method.parameters()} == {torch.float32}


@pytest.mark.parametrize("spec", ["gateskip", "gateskip[shape=scalar,sharing=shared]", "mod"])
def test_seed_decides_new_parameters_alone(spec, shared_backbone):
    """X12: same seed, same parameters, whatever was drawn before; the global generator is left alone."""
    state = torch.get_rng_state()
    one = AdaptiveModel.build(shared_backbone("llama"), spec, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    same, other = (AdaptiveModel.build(shared_backbone("llama"), spec, seed=seed) for seed in (1, 2))
    for ours, again in zip(one.method.parameters(), same.method.parameters(), strict=True):
        assert torch.equal(ours, again)
    assert any(
        not torch.equal(ours, theirs)
        for ours, theirs in zip(one.method.parameters(), other.method.parameters(), strict=True)
    )


def test_input_scales_belong_to_branches(make_model, random_text, monkeypatch):
    """A whole layer has no input of its own to scale: said, not ignored."""
    model = make_model("mod")
    monkeypatch.setattr(model.method, "decide", lambda view: Decision(input_scale=torch.ones(1, 4, 1)))
    with pytest.raises(UsageError, match=r"input_scale.*layer 0.*MixtureOfDepths"):
        model(random_text(1, 4))


@torch.no_grad()
def test_a_report_is_of_what_ran_since_the_dial_was_set(shared_model, random_text):
    """Issue 49, item 3: a loop over dial values reports the share of layers left out at each, not the mean of all so
    far; the calls at one value count together.
    """
    model, ids = shared_model("static_depth"), random_text(2, 9)
    layers = model.backbone.num_layers
    for count in range(layers):
        model.saving = count / layers
        new_tokens(model, ids, max_new_tokens=4)
        assert model.compute_report()["saved"]["tokens"] == pytest.approx(count / layers)
    calls, tokens = (model.compute_report()["counts"]["prefill"][name] for name in ("calls", "tokens"))
    assert (calls, tokens) == (1, 18)
    new_tokens(model, ids, max_new_tokens=4)
    assert model.compute_report()["counts"]["prefill"]["tokens"] == 36
    model.dial = model.dial
    assert model.compute_report()["saved"]["tokens"] is None


@torch.no_grad()
def test_a_report_prints_as_a_page(make_model, make_backbone, random_text):
    """Issue 49, item 3: some ten lines, with all that is in it still there to be read as a dictionary."""
    model = make_model("static_depth", backbone=make_backbone("llama", num_hidden_layers=32)).eval()
    assert "-" in str(model.compute_report())
    model.saving = 0.25
    model(random_text(2, 9))
    report = model.compute_report()
    lines = str(report).splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 120
    assert "25.0%" in lines[1] and "18 tokens, 1 calls" in lines[1]
    assert report == json.loads(json.dumps(report)) and len(report["sites"]) == 64


# `model.saving`: the dial in shares of token-branches.


SETTABLE = ["random_skip", "gateskip", "gateskip[stride=2]", "mod", "calm", "layerskip", "static_depth", "skiplayer"]


@pytest.mark.parametrize("spec", SETTABLE)
def test_setting_sets_the_dial_and_reading_says_the_claim(spec, shared_model):
    """A dial that counts layers, or was solved for, claims what it can: close to what was asked."""
    model = shared_model(spec)
    assert model.saving == 0.0
    coarse = {"layerskip": 0.13, "static_depth": 0.13, "calm": 0.1, "skiplayer": 0.01}.get(spec, 1e-6)
    for share in (0.1, 0.3):
        model.saving = share
        assert model.dial == model.method.dial_for(share)
        assert model.saving == pytest.approx(share, abs=coarse)
    model.saving = 0
    assert model.dial == model.method.dial.skip_nothing


def test_the_end_of_the_dial(shared_model):
    model = shared_model("gateskip[stride=2]")
    model.dial = model.method.dial.minimum
    assert model.saving == pytest.approx(model.method.max_saved_tokens)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), 15])
def test_impossible_savings(share, shared_model):
    """The error says the range, and that 0.15 is 15 %."""
    with pytest.raises(UsageError, match=r"0\.15 is 15 %"):
        shared_model("random_skip").saving = share


# What cannot be read is refused in one sentence: what is taken, what was given, what to do instead.


IDS = torch.arange(3, 9).view(2, 3)
ONES = torch.ones_like(IDS)
NO_IDS = {"text": "text", "list": [[1, 2]], "flat": IDS[0], "deep": IDS[None], "tokens": IDS[:, :0]}
NO_IDS |= {"beyond": IDS + VOCABULARY, "negative": IDS - 50}
NO_MASK = {"wide": torch.ones(2, 5), "more rows": torch.ones(3, 3), "deep mask": torch.ones(2, 1, 3, 3)}


def text(**changes):
    return {"input_ids": IDS, "attention_mask": ONES, "continuation_mask": ONES.bool()} | changes


@pytest.mark.parametrize(
    ("ids", "mask", "said"),
    [
        *((ids, None, "input_ids|Token ids") for ids in NO_IDS.values()),
        *((IDS, mask, "attention_mask") for mask in NO_MASK.values()),
    ],
    ids=[*NO_IDS, *NO_MASK],
)
def test_what_is_no_text_is_refused_wherever_one_is_read(ids, mask, said, shared_model):
    model = shared_model("gateskip")
    calls = (
        lambda: model(ids, mask),
        lambda: model.residual_stream(ids, mask),
        lambda: model.generate(ids, attention_mask=mask, max_new_tokens=2),
        lambda: new_tokens(model, ids, mask, max_new_tokens=2),
    )
    for call in calls:
        with pytest.raises(UsageError, match=said):
            call()


def test_what_cannot_be_continued_is_refused(make_model, random_text):
    """By both loops: right padding, a prompt that fills the context of 64 tokens, a model in training."""
    model, right = make_model("random_skip"), torch.tensor([[1, 1, 1], [1, 1, 0]])
    for write in (model.generate, lambda ids, **how: new_tokens(model, ids, **how)):
        for ids, mask, said in (
            (IDS, right, "padding_side"),
            (random_text(1, 64), None, r"64.*64"),
            (random_text(1, 70), None, r"64.*70"),
        ):
            with pytest.raises(UsageError, match=said):
                write(ids, attention_mask=mask, max_new_tokens=1)
    with pytest.raises(UsageError, match=r"eval\(\) first"):
        new_tokens(model.train(), IDS, max_new_tokens=1)


@torch.no_grad()
def test_masks_that_fit_are_taken(shared_model):
    """Of these tokens, or with a cache of those before too; whatever type a tokenizer gives."""
    model = shared_model("dense")
    cache = model(IDS, ONES.float(), use_cache=True).past_key_values
    wanted = model(torch.cat([IDS, IDS[:, :1]], dim=1)).logits[:, -1]
    found = model(IDS[:, :1], torch.ones(2, 4, dtype=torch.long), past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(model(IDS.int()).logits, model(IDS).logits)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"past_key_values": ((1, 2),)}, "past_key_values"),
        ({"input_ids": None, "inputs_embeds": torch.zeros(1, 2, 32)}, "inputs_embeds.*input_ids"),
        ({"output_attentions": True}, "output_attentions.*backbone_model"),
    ],
)
def test_other_arguments_of_a_call(arguments, said, shared_model):
    with pytest.raises(UsageError, match=said):
        shared_model("dense")(**{"input_ids": IDS} | arguments)


@pytest.mark.parametrize(("ids", "labels"), [(IDS, IDS * 0 - 100), (IDS[:, :1], IDS[:, :1])], ids=["none", "one token"])
def test_a_training_has_a_label_to_learn_from(ids, labels, make_backbone):
    model = AdaptiveModel.build(make_backbone("llama"), "dense")
    with pytest.raises(UsageError, match="labels of which none is left: all are -100, or each row has one token alone"):
        model(ids, labels=labels)
    model(IDS, labels=IDS).loss.backward()


def test_a_backbone_has_a_head_and_the_parts_of_its_layers(make_backbone):
    config = make_backbone("llama").config
    for kind in (LlamaModel, LlamaForSequenceClassification):
        with pytest.raises(UsageError, match=f"is a causal language model, .* got {kind.__name__}. Load it with"):
            AdaptiveModel.build(kind(config), "dense")
    for name, missing in (("mlp", "mlp.gate_proj"), ("input_layernorm", "input_layernorm")):
        model = AdaptiveModel.build(make_backbone("llama"), "dense").eval()
        setattr(model.backbone_model.model.layers[1], name, nn.Identity() if name == "mlp" else None)
        for call in (partial(model, IDS), partial(AdaptiveModel.build, model.backbone_model, "dense")):
            with pytest.raises(UsageError, match=f"but layer 1 has no {missing}. Leave the model's own module"):
                call()


def test_a_text_that_the_context_ends_is_told_of(shared_model):
    model = shared_model("dense")
    context = model.backbone.context_length
    ids = torch.full((2, context - 3), 5)
    with pytest.warns(UserWarning, match=f"context of {context} tokens at the latest: 2 of 2 end there"):
        assert model.generate(ids, max_new_tokens=10, eos_token_id=None).shape == (2, context)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate(ids, max_new_tokens=3, eos_token_id=None)


def test_a_row_of_prompts_has_a_token(shared_model):
    mask = torch.tensor([[0, 1, 1], [0, 0, 0]])
    with pytest.raises(UsageError, match="got row 1 with padding alone"):
        shared_model("dense").generate(IDS, attention_mask=mask, max_new_tokens=2)


def test_savings_beyond_what_a_method_can_save_are_told_of(make_backbone):
    model = AdaptiveModel.build(make_backbone("llama"), "mod")
    most = model.method.max_saved_tokens
    with pytest.warns(UserWarning, match=rf"mod can save up to {most:.3g} of .*, got savings up to 0\.99"):
        model.calibrate([text()], [0.1, 0.99])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate([text()], [0.1, round(most, 6)])


def test_a_cache_is_of_the_same_rows(shared_model):
    model = shared_model("dense")
    with torch.no_grad():
        cache = model(IDS[:1], use_cache=True).past_key_values
    with pytest.raises(UsageError, match="same rows, here 2, got one of 1"):
        model(IDS, past_key_values=cache)


def test_greedy_with_a_temperature_of_zero_is_what_lm_eval_asks_for(shared_model):
    assert shared_model("dense").generate(IDS, temperature=0.0, do_sample=False, max_new_tokens=2).shape == (2, 5)


@pytest.mark.parametrize("savings", [[2], [-1], [float("nan")]], ids=repr)
@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "calm"])
def test_savings_are_shares_for_every_method(spec, savings, shared_model):
    with pytest.raises(UsageError, match=r"[Ss]aving"):
        shared_model(spec).calibrate([text()], savings)


@pytest.mark.parametrize(
    "batches",
    [[{"input_ids": IDS}], [{}]],
    ids=["parts", "nothing"],
)
@pytest.mark.parametrize("spec", ["gateskip", "static_depth[trained=true]"])
def test_held_out_text_is_a_list_of_batches(spec, batches, shared_model):
    model = shared_model(spec)
    for call in (lambda: model.calibrate(batches, [0.1]), lambda: model.prepare_training(batches)):
        with pytest.raises(UsageError, match="Held-out text is a list of batches with input_ids"):
            call()


@pytest.mark.parametrize("stand", [(9, 5), (0, 5), (1, 0)])
def test_a_training_stands_at_one_of_its_steps(stand, shared_model):
    with pytest.raises(UsageError, match="from 1 to total_steps"):
        shared_model("dense").begin_step(*stand)


@pytest.mark.parametrize("how", [{"families": ["lama"]}, {"device": "gpu"}])
def test_what_it_is_checked_on_exists(how):
    with pytest.raises(UsageError, match=r"llama|A device is .* Set --device, or device= in Python\."):
        check_specs("dense", **how)


def test_a_run_has_a_config():
    for call in (plan, run):
        with pytest.raises(UsageError, match="load_config"):
            call("nano")


def test_held_out_text_may_name_its_documents(shared_model):
    batch = text(documents=torch.arange(len(IDS)))
    assert shared_model("gateskip").calibrate([batch], [0.1])["dials"]
