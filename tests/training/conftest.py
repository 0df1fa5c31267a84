"""A byte-level tokenizer, a tiny model and some examples: enough to train in a second."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.task import Example


def make_tokenizer(bos=False, eos=True, pad=False):
    specials = ["<s>", "</s>", "<pad>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*specials, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    names = {"bos_token": "<s>" if bos else None, "eos_token": "</s>" if eos else None}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names, pad_token="<pad>" if pad else None)


def make_model(spec="dense", seed=0, layers=2):
    """A tiny Llama whose weights depend on the seed, under a method."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=259, hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    return AdaptiveModel.build(LlamaForCausalLM(config), spec, seed=seed)


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def tokenizer_of():
    return make_tokenizer


@pytest.fixture
def model():
    return make_model()


@pytest.fixture
def model_of():
    return make_model


@pytest.fixture
def examples():
    return [Example(f"{a}+{b}=", f" {'so ' * (b % 4)}{a + b}") for a in range(4) for b in range(5)]


@pytest.fixture
def recipe():
    return TrainRecipe(steps=6, batch_size=4, learning_rate=3e-3, warmup_steps=2, max_length=48, checkpoint_every=2)
