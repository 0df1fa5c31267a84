"""Makes tiny random backbones of the real Hugging Face classes, and random text for them.

Their weights are large and their norms uneven, so that a skipped branch, a wrong position or a misplaced norm moves the
logits by far more than any tolerance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.backbone import find_family

FAMILIES = ("llama", "qwen3", "gemma2")  # checked by default; together they have every peculiarity of the families
VOCABULARY = 97
FIRST_WORD = 3  # ids below are special tokens
BOS = 1
WIDTH = 1024  # width of a real model's residual stream
MASSIVE = range(0, WIDTH, WIDTH // 4)  # its channels with massive activations
# Factors of those channels at the first and at other tokens, as in late layers of SmolLM2-135M.
FIRST_FACTOR, OTHER_FACTOR = 2000.0, 40.0
BRANCH_FACTOR = 10.0  # makes residual norms those of real models: hundreds, and 20,000 at the first token
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.25,
    "pad_token_id": 0,
    "bos_token_id": BOS,
    "eos_token_id": 2,
}


def tiny_backbone(family: str) -> PreTrainedModel:
    """A new model of a registered family, in `eval()`, always with the same weights."""
    return copy.deepcopy(_original(family))


def wide_backbone(family: str) -> PreTrainedModel:
    """The same model with a residual stream as wide as a real model's, for effects that grow with the width; heads and
    MLPs stay narrow.
    """
    return copy.deepcopy(_original(family, WIDTH))


def massive_backbone(family: str) -> PreTrainedModel:
    """The wide backbone with massive activations as in every real Llama: a few channels of the residual stream are far
    larger than the others, and at the first token, which has to be BOS, more than a thousand times as large.
    """
    model = wide_backbone(family)
    embedding: Any = model.get_input_embeddings()
    head: Any = model.get_output_embeddings()
    head.weight = nn.Parameter(head.weight.detach().clone())  # a copy, since it may be tied to the embedding
    model.config.tie_word_embeddings = False
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(BRANCH_FACTOR)
        # All words in a row, [1, V]. The last hidden state has passed the final norm; the one before it is the stream.
        states = model(torch.arange(FIRST_WORD, VOCABULARY)[None], output_hidden_states=True).hidden_states
        usual = states[-2].std() * embedding.weight.std() / states[0].std()  # for a weight: Gemma scales embeddings
        embedding.weight.mul_(usual / embedding.weight.std())
        embedding.weight[:, MASSIVE] += OTHER_FACTOR * usual
        embedding.weight[BOS, MASSIVE] = FIRST_FACTOR * usual
        # So that the logits do not come from the massive channels alone.
        head.weight[:, MASSIVE] /= OTHER_FACTOR
    return model


@cache
def _original(family: str, width: int = SIZES["hidden_size"]) -> PreTrainedModel:
    about = find_family(family)
    sizes = {**SIZES, **about.tiny}
    narrow = SIZES["hidden_size"]
    if width != narrow:  # keeps the size of heads, and what branches make of a state of unit variance
        head = sizes.get("head_dim", narrow // SIZES["num_attention_heads"])
        sizes |= {
            "hidden_size": width,
            "head_dim": head,
            "initializer_range": SIZES["initializer_range"] * math.sqrt(narrow / width),
        }
    config = AutoConfig.for_model(family, **sizes)
    caps_scores = getattr(config, "attn_logit_softcapping", None) is not None
    attention = "eager" if caps_scores else "sdpa"  # the fused kernels cannot soft-cap scores
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # the caller's generator stays where it is
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        for name, parameter in model.named_parameters():
            if "norm" in name:  # Hugging Face starts all norms alike, which would hide that two were swapped
                parameter.add_(0.3 * torch.randn_like(parameter))
            if any(f".{norm}." in name for norm in about.norm_after.values()):
                parameter.add_(2.0)  # otherwise scaled embeddings drown out the branches, and each word predicts itself
    return model.eval()


@dataclass(frozen=True)
class Text:
    """Rows of random tokens, each mask and the tokens [B, S]; the last part of each row is the continuation of a
    prompt.
    """

    input_ids: Tensor
    attention_mask: Tensor
    continuation_mask: Tensor

    @property
    def valid(self) -> Tensor:
        """[B, S] real tokens."""
        return self.attention_mask.bool()

    @property
    def arguments(self) -> dict[str, Tensor]:
        """Arguments for `AdaptiveModel.forward` and `AdaptiveModel.calibrate`."""
        return dict(vars(self))

    @property
    def as_read(self) -> Text:
        """The text without the last token of each row, which models never read; for text padded on the right."""
        last = self.valid & (self.attention_mask.cumsum(dim=1) == self.attention_mask.sum(dim=1, keepdim=True))
        return Text(self.input_ids, self.attention_mask * ~last, self.continuation_mask & ~last)

    def to(self, device: torch.device | str) -> Text:
        """The text on a device."""
        return Text(*(part.to(device) for part in self.arguments.values()))

    def rows(self, chosen: slice | Sequence[int]) -> Text:
        """Some of the rows, in that order."""
        return Text(*(part[chosen] for part in self.arguments.values()))

    def prefix(self, length: int) -> Text:
        """The first columns of every row."""
        return Text(*(part[:, :length] for part in self.arguments.values()))


def random_text(
    lengths: Sequence[int],
    *,
    seed: int = 0,
    side: Literal["left", "right"] = "left",
    prompt: int | None = None,
    distinct: bool = False,
) -> Text:
    """Rows of the given lengths, padded on one side; a row has the same words on either side.

    Args:
        prompt: Tokens of each row that are its prompt; by default the first half, rounded up.
        distinct: Use no word twice. Before the first attention equal words have equal scores, and rounding on a
            processor would decide which of them a ranking drops.
    """
    width = max(lengths)
    generator = torch.Generator().manual_seed(seed)
    if distinct:
        drawn = torch.randperm(VOCABULARY - FIRST_WORD, generator=generator) + FIRST_WORD
        words = drawn[: len(lengths) * width].view(len(lengths), width)
    else:
        words = torch.randint(FIRST_WORD, VOCABULARY, (len(lengths), width), generator=generator)
    ids = torch.zeros_like(words)
    mask, continuation = torch.zeros_like(words), torch.zeros_like(words, dtype=torch.bool)
    for row, length in enumerate(lengths):
        start = width - length if side == "left" else 0
        end = start + length
        ids[row, start:end] = words[row, :length]  # the same words whichever side is padded
        mask[row, start:end] = 1
        continuation[row, start + ((length + 1) // 2 if prompt is None else prompt) : end] = True
    return Text(ids, mask, continuation)
