"""Libraries that expect a Hugging Face model get what they ask for, and the dense model's numbers at saving 0."""

import logging

import pytest
import torch
from accelerate import Accelerator
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens

FAMILIES = ["llama", "qwen3", "gemma2"]


def padded_prompts(random_text):
    """Three prompts of 4, 9 and 7 tokens, padded on the left."""
    ids = random_text(3, 9)
    mask = torch.arange(9) >= torch.tensor([[5], [0], [2]])
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


SETTINGS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True},
    "warped": {"do_sample": True, "temperature": 0.7, "top_k": 9, "top_p": 0.8},
    "penalties": {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
    "several": {"do_sample": True, "num_return_sequences": 2},
    "typical": {"do_sample": True, "typical_p": 0.5, "min_p": 0.01},
    "without a cache": {"use_cache": False},
    "sampled without a cache": {"do_sample": True, "top_k": 9, "use_cache": False},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_dense_model_writes_what_hugging_face_writes(family, setting, shared_backbone, shared_model, random_text):
    """Token for token, draws included: the same processors, the same use of the random generator."""
    arguments = padded_prompts(random_text) | {"max_new_tokens": 12, "pad_token_id": 0} | SETTINGS[setting]
    model, written = shared_model("dense", family), []
    for each in (shared_backbone(family), model):
        # A token of the free text ends rows: some leave the batch before the others.
        torch.manual_seed(3)
        free = each.generate(**arguments)
        torch.manual_seed(3)
        ended = each.generate(**arguments, eos_token_id=[int(free[0, 11]), int(free[1, 14])])
        written += [free, ended]
    assert torch.equal(written[0], written[2]) and torch.equal(written[1], written[3])
    assert (written[1][:, -1] == 0).any(), "a row of this test should end before the others"


def test_greedy_equals_the_own_interface_while_skipping(shared_model, random_text):
    """One meaning, two interfaces."""
    model = shared_model("gateskip")
    model.saving = 0.3
    prompts = padded_prompts(random_text)
    theirs = model.generate(**prompts, max_new_tokens=8)[:, 9:].tolist()
    saved = model.compute_report()["counts"]
    model.reset_ledger()
    assert new_tokens(model, **prompts, max_new_tokens=8) == theirs
    assert model.compute_report()["counts"] == saved


def test_finished_rows_cost_nothing(shared_model, random_text):
    """A row that has ended is neither computed nor booked."""
    model, prompts = shared_model("dense"), padded_prompts(random_text)
    free = model.generate(**prompts, max_new_tokens=6)
    model.reset_ledger()
    model.generate(**prompts, max_new_tokens=6, eos_token_id=free[:, 9].unique().tolist())
    assert model.compute_report()["counts"]["decode"]["tokens"] == 0


class Remember(BaseStreamer):
    def __init__(self):
        self.parts, self.ended = [], False

    def put(self, value):
        self.parts.append(value.flatten().tolist())

    def end(self):
        self.ended = True


class AtLength(StoppingCriteria):
    """Ends row r once it has r + 1 new tokens after a prompt of 9."""

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids.shape[1] - 9 > torch.arange(len(input_ids))


def test_streamers_and_stopping_criteria(shared_model, shared_backbone, random_text):
    """A streamer gets the prompt and each token; criteria see every row in its place, whoever has left. As in Hugging
    Face's loop a row that one ends is filled up where there is an end token, and goes on with the others where not.
    """
    model, streamer = shared_model("dense"), Remember()
    written = model.generate(random_text(1, 9), max_new_tokens=4, streamer=streamer)
    assert streamer.parts == [random_text(1, 9)[0].tolist(), *([token] for token in written[0, 9:].tolist())]
    assert streamer.ended
    free = model.generate(random_text(3, 9), max_new_tokens=5)
    criteria = StoppingCriteriaList([AtLength()])
    arguments = {"max_new_tokens": 5, "stopping_criteria": criteria, "pad_token_id": 0}
    onwards = model.generate(random_text(3, 9), **arguments)
    assert torch.equal(onwards, free[:, :12])
    assert torch.equal(onwards, shared_backbone("llama").generate(random_text(3, 9), **arguments))
    unwritten = next(token for token in range(1, 99) if token not in free)
    stopped = model.generate(random_text(3, 9), eos_token_id=unwritten, **arguments)
    assert torch.equal(
        stopped, shared_backbone("llama").generate(random_text(3, 9), eos_token_id=unwritten, **arguments)
    )
    assert stopped.shape == (3, 12)
    for row in range(3):
        assert stopped[row, : 10 + row].tolist() == free[row, : 10 + row].tolist()
        assert not stopped[row, 10 + row :].any()


def test_dictionary_output(shared_model, shared_backbone, random_text):
    """Scores and logits are those of Hugging Face's loop."""
    arguments = {"max_new_tokens": 4, "repetition_penalty": 1.3, "pad_token_id": 0}
    arguments |= {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    ours, theirs = (
        each.generate(random_text(2, 9), **arguments) for each in (shared_model("dense"), shared_backbone("llama"))
    )
    assert torch.equal(ours.sequences, theirs.sequences)
    for kind in ("scores", "logits"):
        for mine, other in zip(ours[kind], theirs[kind], strict=True):
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_a_generator_of_ones_own(shared_model, random_text):
    """Draws from a given generator leave torch's alone."""
    model, before = shared_model("dense"), torch.get_rng_state()
    draws = [
        model.generate(
            random_text(1, 9), do_sample=True, max_new_tokens=8, generator=torch.Generator().manual_seed(seed)
        ).tolist()
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1] != draws[2] and torch.equal(torch.get_rng_state(), before)


def test_the_context_ends_a_row(shared_model, random_text):
    """The tiny context holds 64 tokens; padding takes none of it."""
    model, ids = shared_model("dense"), random_text(2, 60)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    written = model.generate(ids, attention_mask=mask, max_new_tokens=20, pad_token_id=0)
    assert written.shape == (2, 69) and not written[1, 64:].any()


@pytest.mark.parametrize(
    "argument",
    [
        {"penalty_alpha": 0.6, "top_k": 4},
        {"cache_implementation": "static"},
        {"output_attentions": True},
        {"past_key_values": object()},
        {"assistant_model": object()},
        {"inputs_embeds": torch.zeros(1, 2, 32)},
        {"no_such_argument": 1},
        {"stop_strings": ["x"]},
        {"num_return_sequences": 2},
        {"num_beams": 2},
    ],
    ids=lambda argument: next(iter(argument)),
)
def test_what_is_not_supported_is_refused_by_name(argument, shared_model, random_text):
    """The user's mistake is called one, and the argument is named."""
    with pytest.raises(UsageError, match=next(iter(argument))):
        shared_model("dense").generate(random_text(1, 4), **{"max_new_tokens": 3} | argument)


def test_assisted_generation_says_what_to_do_instead(shared_model, random_text):
    """Of the main model as of the assistant; the models inside assist each other as ever."""
    model, ids = shared_model("static_depth"), random_text(1, 6)
    plain, how = model.backbone_model, {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with pytest.raises(UsageError, match=r"no assistant_model.*adaptive-bench speculate"):
        plain.generate(ids, assistant_model=model, **how)
    for assistant in (plain, model):
        with pytest.raises(UsageError, match=r"assistant_model.*or generate with model\.backbone_model"):
            model.generate(ids, assistant_model=assistant, **how)
    assert torch.equal(plain.generate(ids, assistant_model=plain, **how), plain.generate(ids, **how))


def test_a_config_object_is_read_alike(shared_model, random_text):
    """What is refused is refused there too; neutral values are not."""
    model, ids = shared_model("dense"), random_text(1, 4)
    with pytest.raises(UsageError, match="penalty_alpha"):
        model.generate(ids, GenerationConfig(penalty_alpha=0.6, top_k=4))
    assert model.generate(ids, GenerationConfig(num_beams=1, use_cache=True, max_new_tokens=3)).shape == (1, 7)


def test_attributes(make_backbone):
    """What libraries look up is the backbone's."""
    backbone = make_backbone("llama")
    model = AdaptiveModel.build(backbone, "gateskip").eval()
    assert (model.device, model.dtype, model.config) == (backbone.device, torch.float32, backbone.config)
    assert model.can_generate() and model.main_input_name == "input_ids"
    assert model.get_input_embeddings() is backbone.get_input_embeddings()
    assert model.get_output_embeddings() is backbone.get_output_embeddings()
    model.tie_weights()
    model.generation_config = GenerationConfig(max_new_tokens=2)
    assert backbone.generation_config.max_new_tokens == 2
    assert model.num_parameters() == sum(parameter.numel() for parameter in model.parameters())
    assert model.to(torch.bfloat16).dtype == torch.bfloat16


def test_accelerate_prepares_it(make_backbone, random_text):
    """The prepared model computes and saves the same."""
    model = AdaptiveModel.build(make_backbone("llama"), "random_skip").eval()
    model.saving = 0.3
    wanted, saved = model(random_text(2, 12)).logits, model.compute_report()
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(model)
    model.reset_ledger()
    assert torch.equal(prepared(random_text(2, 12)).logits, wanted)
    assert accelerator.unwrap_model(prepared).compute_report() == saved


def test_the_name_is_known_to_pipelines(caplog, shared_model):
    """Making a pipeline complains about nothing."""
    from transformers import TextGenerationPipeline

    pipeline = object.__new__(TextGenerationPipeline)
    pipeline.model, pipeline.task = shared_model("dense"), "text-generation"
    with caplog.at_level(logging.WARNING, "transformers"):
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        pipeline.check_model_type(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not caplog.records


# `use_cache=False` is no error, and changes nothing.


def skipping(model, share=0.3):
    """A model that skips."""
    model.saving = min(share, model.method.max_saved_tokens)
    return model


@pytest.mark.parametrize("spec", ["gateskip", "random_skip", "mod"])
def test_without_a_cache_a_method_writes_what_it_writes_with_one(spec, shared_model, random_text):
    model, prompts = skipping(shared_model(spec)), padded_prompts(random_text)
    with_cache = model.generate(**prompts, max_new_tokens=8)
    assert model.compute_report()["saved"]["tokens"] > 0
    assert torch.equal(model.generate(**prompts, max_new_tokens=8, use_cache=False), with_cache)
