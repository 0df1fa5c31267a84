"""A byte-level tokenizer, a tiny model and some examples: enough to train in a second."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from adaptive_bench.config import TrainRecipe
from adaptive_bench.spec import MethodSpec
from adaptive_bench.task import Example


def make_tokenizer(bos: bool = False, eos: bool = True, pad: bool = False) -> PreTrainedTokenizerFast:
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


class TinyModel(nn.Module):
    """What the loop needs of an adaptive model, around a random Llama."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = LlamaConfig(
            vocab_size=259, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
        )  # fmt: skip
        self.llama = LlamaForCausalLM(self.config)
        self.spec = MethodSpec.parse("dense")
        self.loss_terms: dict[str, float] = {}
        self.begun: list[tuple[int, int]] = []

    def forward(self, input_ids, attention_mask=None, labels=None):
        output = self.llama(input_ids, attention_mask=attention_mask, labels=labels)
        self.loss_terms = {"ce": float(output.loss.detach())}
        return output

    def begin_step(self, step, total_steps):
        self.begun.append((step, total_steps))

    def parameter_groups(self, learning_rate):
        return [{"params": list(self.parameters()), "lr": learning_rate}]

    def save_pretrained(self, folder):
        self.llama.save_pretrained(folder)


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def tokenizer_of():
    return make_tokenizer


@pytest.fixture
def model():
    return TinyModel()


@pytest.fixture
def model_of():
    return TinyModel


@pytest.fixture
def examples():
    return [Example(f"{a}+{b}=", f" {'so ' * (b % 4)}{a + b}") for a in range(4) for b in range(5)]


@pytest.fixture
def recipe():
    return TrainRecipe(steps=6, batch_size=4, learning_rate=3e-3, warmup_steps=2, max_length=48, checkpoint_every=2)
