"""The forward pass takes Hugging Face's arguments, or says which of them it cannot honour and what to do instead."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
def test_hidden_states_are_those_of_hugging_face(family, shared_backbone, shared_model, random_text):
    """Embeddings, then the stream after each layer, the last one normalised."""
    ids = random_text(2, 9)
    with torch.no_grad():
        wanted = shared_backbone(family)(ids, output_hidden_states=True).hidden_states
        found = shared_model("dense", family)(ids, output_hidden_states=True).hidden_states
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_layer_that_everybody_skips_leaves_the_stream_as_it_was(shared_model, random_text):
    """Hidden states are those of the execution, not of the dense model."""
    model = shared_model("static_depth")
    model.dial = model.method.dial.maximum if model.method.dial.skip_nothing == 0 else model.method.dial.minimum
    with torch.no_grad():
        states = model(random_text(1, 9), output_hidden_states=True).hidden_states
    assert any(torch.equal(before, after) for before, after in pairwise(states[:-1]))


@pytest.mark.parametrize("spec", ["dense", "random_skip"])
@pytest.mark.parametrize("training", [False, True])
def test_a_loss_does_not_depend_on_the_side_of_padding(training, spec, make_backbone, random_text):
    """It is Hugging Face's with padding on the right. With padding on the left that of the two attentions of Hugging
    Face differs: the first token of a short row is predicted from padding, whose state means nothing.
    """
    model, ids = AdaptiveModel.build(make_backbone("llama"), spec, seed=1), random_text(2, 9)
    right = torch.arange(9) < torch.tensor([[9], [4]])
    left, shifted = right.flip(1), torch.stack([ids[0], ids[1].roll(5)])
    with torch.no_grad():
        wanted = make_backbone("llama").eval()(ids, right.long(), labels=ids.masked_fill(~right, -100)).loss
        for tokens, mask in ((ids, right), (shifted, left)):
            found = model.train(training)(tokens, mask.long(), labels=tokens.masked_fill(~mask, -100)).loss
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_tuple_in_place_of_an_output(shared_model, random_text):
    model, ids = shared_model("dense"), random_text(2, 5)
    with torch.no_grad():
        loss, logits = model(ids, labels=ids, return_dict=False)
        output = model(ids, labels=ids, return_dict=True)
    assert torch.equal(loss, output.loss) and torch.equal(logits, output.logits)


def test_positions_are_taken_where_they_are_the_models_own(shared_model, random_text):
    """Padding may have any; several texts in a row are refused, in a first call and in a later one."""
    model, ids = shared_model("random_skip"), random_text(2, 5)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    own = torch.tensor([[7, 1, 0, 1, 2], [0, 1, 2, 3, 4]])
    with torch.no_grad():
        output = model(ids, mask, use_cache=True)
        assert torch.equal(model(ids, mask, position_ids=own).logits, output.logits)
        assert torch.equal(model(ids, position_ids=torch.arange(5)[None]).logits, model(ids).logits)
        with pytest.raises(UsageError, match="position_ids"):
            model(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1]]))
        with pytest.raises(UsageError, match="position_ids"):
            model(ids[:, :1], past_key_values=output.past_key_values, position_ids=torch.tensor([[5]]))
        model(ids[:, :1], past_key_values=output.past_key_values, position_ids=torch.tensor([[3], [5]]))


def test_hidden_states_of_waiting_tokens_are_refused(shared_model, random_text):
    with pytest.raises(UsageError, match="output_hidden_states"):
        shared_model("free[kv=defer]")(random_text(1, 4), output_hidden_states=True)


@pytest.mark.parametrize("share", [torch.tensor(0.3), np.float32(0.3)])
def test_a_number_of_another_library_is_a_number(share, shared_model):
    model = shared_model("random_skip")
    model.saving = share
    assert model.saving == pytest.approx(0.3, abs=1e-6)
    model.dial = share
    assert model.dial == pytest.approx(0.3, abs=1e-6) and type(model.dial) is float


def test_what_is_no_model_is_refused_with_a_next_step(shared_model, shared_backbone):
    with pytest.raises(UsageError, match=r"got 'nano'.*find_backbone\('nano'\)\.load_model\(\)"):
        AdaptiveModel.build("nano", "gateskip")
    with pytest.raises(UsageError, match=r"got AdaptiveModel.*model\.backbone_model"):
        AdaptiveModel.build(shared_model("dense"), "gateskip")
    with pytest.raises(UsageError, match="spec"):
        AdaptiveModel.build(shared_backbone("llama"), None)


def test_another_vocabulary(make_backbone, make_model, random_text):
    """New tokens are read and written, the old ones score as before, and a calibration of the old weights ends."""
    model = make_model("gateskip", backbone=make_backbone("llama"))
    ids = random_text(2, 9)
    with torch.no_grad():
        before, size = model(ids).logits, model.backbone.vocab_size
        model.resize_token_embeddings(size + 3)
        after = model(torch.cat([ids, ids[:, :1] * 0 + size], dim=1)).logits
    assert after.shape == (2, 10, size + 3)
    torch.testing.assert_close(after[:, :9, :size], before, atol=1e-5, rtol=1e-5)  # a wider head sums in another order
    assert model.backbone.head_macs == model.backbone.hidden_size * (size + 3)
    with pytest.raises(UsageError, match="calibrate"):
        model.saving = 0.3


def test_checkpointing_is_switched_off_again(make_backbone):
    model = AdaptiveModel.build(make_backbone("llama"), "dense")
    model.gradient_checkpointing_enable()
    model.gradient_checkpointing_disable()
    assert not model.is_activation_checkpointing


def test_torch_compile_leaves_the_model_as_it_is(shared_model, random_text):
    """The same numbers and the same books."""
    model, ids = shared_model("random_skip"), random_text(2, 9)
    model.saving = 0.3
    with torch.no_grad():
        wanted, booked = model(ids).logits, model.compute_report()["counts"]
        model.reset_ledger()
        found = torch.compile(model)(ids).logits
    assert torch.equal(found, wanted) and model.compute_report()["counts"] == booked
