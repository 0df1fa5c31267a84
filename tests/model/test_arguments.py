"""What cannot be read is refused in one sentence: what is taken, what was given, what to do instead."""

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from transformers import LlamaForSequenceClassification, LlamaModel

from adaptive_bench import check_specs, plan, run
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.testing.backbones import VOCABULARY

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
