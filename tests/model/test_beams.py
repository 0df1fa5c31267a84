"""Beams and `use_cache=False`: Hugging Face's tokens where nothing skips, a beam's own decisions where tokens do."""

import pytest
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel

FAMILIES = ["llama", "gemma2"]
# Decisions from hidden states, at random, deferred; K,V kept in each way.
SPECS = [
    "gateskip",
    "random_skip",
    "random_skip[kv=copy_below]",
    "random_skip[kv=evict]",
    "mod",
    "prompt_router",
    "dash_halting",
    "calm",
    "free[kv=defer]",
]

BEAMS = {
    "plain": {"num_beams": 3},
    "several": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.5},
    "early": {"num_beams": 3, "early_stopping": True, "eos_token_id": list(range(3, 40))},
    "processed": {"num_beams": 2, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    "drawn": {"num_beams": 3, "do_sample": True, "temperature": 1.3},
    "no_cache": {"num_beams": 3, "use_cache": False},
}


def padded_prompts(random_text):
    """Three prompts of 4, 9 and 7 tokens, padded on the left."""
    ids, mask = random_text(3, 9), torch.arange(9) >= torch.tensor([[5], [0], [2]])
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("setting", BEAMS)
def test_the_dense_model_finds_the_beams_of_hugging_face(family, setting, shared_backbone, shared_model, random_text):
    arguments = padded_prompts(random_text) | {"max_new_tokens": 8, "pad_token_id": 0} | BEAMS[setting]
    arguments |= {"return_dict_in_generate": True, "output_scores": True}
    found = []
    for each in (shared_backbone(family), shared_model("dense", family)):
        torch.manual_seed(3)
        found.append(each.generate(**arguments))
    assert torch.equal(found[0].sequences, found[1].sequences)
    torch.testing.assert_close(found[0].sequences_scores, found[1].sequences_scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("setting", [{}, {"do_sample": True, "top_k": 9}], ids=["greedy", "sampled"])
def test_without_a_cache_the_dense_model_writes_what_hugging_face_writes(
    family, setting, shared_backbone, shared_model, random_text
):
    """Rows that end included."""
    arguments = padded_prompts(random_text) | {"max_new_tokens": 8, "pad_token_id": 0, "use_cache": False} | setting
    written = []
    for each in (shared_backbone(family), shared_model("dense", family)):
        torch.manual_seed(3)
        free = each.generate(**arguments)
        torch.manual_seed(3)
        written += [free, each.generate(**arguments, eos_token_id=[int(free[0, 11]), int(free[1, 14])])]
    assert torch.equal(written[0], written[2]) and torch.equal(written[1], written[3])


def skipping(model, share=0.3):
    """A model that skips."""
    model.saving = min(share, model.method.max_saved_tokens)
    return model


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "mod"])
def test_without_a_cache_a_method_writes_what_it_writes_with_one(spec, shared_model, random_text):
    """Decisions of class C0 are the same however a text is cut into calls."""
    model, prompts = skipping(shared_model(spec)), padded_prompts(random_text)
    with_cache = model.generate(**prompts, max_new_tokens=8)
    assert model.compute_report()["saved"]["tokens"] > 0
    assert torch.equal(model.generate(**prompts, max_new_tokens=8, use_cache=False), with_cache)


def log_likelihood(model, prompt, written):
    """Of written tokens [N] after a prompt [S], computed from scratch: one text, one token at a time."""
    output, total = model(prompt[None], use_cache=True, logits_to_keep=1), 0.0
    for token in written:
        total += float(output.logits[0, -1].log_softmax(dim=-1)[token])
        output = model(token.view(1, 1), past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
    return total


@pytest.mark.parametrize("spec", SPECS)
def test_a_beam_carries_its_own_decisions(spec, shared_model, random_text):
    """The score of every beam is that of its text alone, computed from scratch with the method's decisions for it."""
    model, prompts = skipping(shared_model(spec)), padded_prompts(random_text)
    found = model.generate(
        **prompts, max_new_tokens=8, num_beams=4, num_return_sequences=4, length_penalty=0.0,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    assert model.compute_report()["saved"]["tokens"] > 0
    assert (found.beam_indices[:, 1:] != found.beam_indices[:, :-1]).any(), "some beam goes on from another row"
    with torch.no_grad():
        for row, (sequence, score) in enumerate(zip(found.sequences, found.sequences_scores, strict=True)):
            real = prompts["attention_mask"][row // 4].bool()
            alone = log_likelihood(model, sequence[:9][real], sequence[9:])
            assert alone == pytest.approx(float(score), abs=1e-3)


def test_a_prompt_is_read_once_for_all_its_beams(shared_model, random_text):
    model = shared_model("dense")
    model.generate(random_text(2, 9), max_new_tokens=4, num_beams=3)
    counts = model.compute_report()["counts"]
    assert counts["prefill"]["tokens"] == 2 * 9 and counts["decode"]["tokens"] == 2 * 3 * 3


def test_methods_whose_decisions_depend_on_other_rows_are_refused(make_backbone, random_text):
    model = AdaptiveModel.build(make_backbone("llama"), "gateskip@paper").eval()
    with pytest.raises(UsageError, match=r"gateskip@paper depend on the other sequences of a batch.*num_beams=2"):
        model.generate(random_text(1, 4), num_beams=2, max_new_tokens=3)
    with pytest.raises(UsageError, match="use_cache=False"):
        model.generate(random_text(1, 4), use_cache=False, max_new_tokens=3)


def test_beams_need_room_in_the_context(shared_model, random_text):
    with pytest.raises(UsageError, match=r"64 tokens, got 68.*max_new_tokens"):
        shared_model("dense").generate(random_text(1, 60), num_beams=2, max_new_tokens=8)
