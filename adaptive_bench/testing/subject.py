"""What checks run on: tiny random models of the real Hugging Face classes, random text, and a spec prepared on them.

Weights are large and norms uneven, so that a skipped branch, a wrong position or a misplaced norm moves the logits by
far more than any tolerance. Trainings are short, and run as the real training loop does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from adaptive_bench.backbone import find_family
from adaptive_bench.method import method_class, training_spec
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.encoding import IGNORED_LABEL

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


SEED = 1
SPREAD = 0.3  # standard deviation of what is added to parameters
SHARES = (0.4, 0.8)  # of the largest saving the dial can reach
CALIBRATION_PROMPT = 10
CALIBRATION_TEXT = random_text((24,) * 6, seed=99, prompt=CALIBRATION_PROMPT)


class Subject:
    """One method spec on one family, with models and texts on a device."""

    def __init__(self, spec: MethodSpec, family: str, device: torch.device | str = "cpu") -> None:
        self.spec = spec
        self.family = family
        self.device = torch.device(device)
        self.texts = 0  # number of the set of texts that `text` draws from

    @property
    def training_spec(self) -> MethodSpec:
        """The spec that has to be trained for this one."""
        return training_spec(self.spec)

    @property
    def declared_class(self) -> str:
        """Causality class that the method must have: C0 in `bench`, and in `paper` the one it declares."""
        return "C0" if self.spec.semantics == "bench" else method_class(self.spec).paper_class

    def build(self, spec: MethodSpec | None = None) -> AdaptiveModel:
        """A new model in `eval()` that is ready to be trained, by default of the spec itself."""
        model = AdaptiveModel.build(self.backbone(), spec or self.spec, seed=SEED).eval()
        # Trained static depth, for one, chooses its layers on text before the first step.
        model.prepare_training([CALIBRATION_TEXT.to(self.device).arguments])
        return model

    def backbone(self, make: Callable[[str], PreTrainedModel] = tiny_backbone) -> PreTrainedModel:
        """A new model of the family without a method."""
        model: torch.nn.Module = make(self.family)
        return cast(PreTrainedModel, model.to(self.device))

    def text(
        self, *lengths: int, seed: int = 0, side: Literal["left", "right"] = "left", prompt: int | None = None
    ) -> Text:
        """Random text; see `random_text`."""
        return random_text(lengths, seed=seed + 1000 * self.texts, side=side, prompt=prompt).to(self.device)

    def model(self) -> AdaptiveModel:
        """The shared model, spread and calibrated, with dial, executor and ledger reset. Do not change its weights."""
        model = self._shared
        model.dial = model.method.dial.skip_nothing
        model.executor = None
        model.reset_ledger()
        return model.eval()

    @property
    def dials(self) -> list[float]:
        """Dial values that should skip, each more than the one before; empty if the dial cannot be moved."""
        method = self._shared.method
        values = (method.checked_dial(share * method.max_saved_tokens) for share in SHARES)
        # Both shares may give one value of a dial that moves in steps.
        return [value for value in dict.fromkeys(values) if value != method.dial.skip_nothing]

    @property
    def all_dials(self) -> list[float]:
        """The value that skips nothing, followed by `dials`."""
        return [self._shared.method.dial.skip_nothing, *self.dials]

    @cached_property
    def _shared(self) -> AdaptiveModel:
        model = self.build()
        spread(model)
        calibrate(model)
        return model


@torch.no_grad()
def spread(model: AdaptiveModel) -> None:
    """Move the method's parameters at random, as training would, so that scores differ between tokens."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.method.parameters():
        # Drawn on the CPU, so that every device gets the same numbers.
        parameter.add_(SPREAD * torch.randn(parameter.shape, generator=generator).to(parameter.device))


def calibrate(model: AdaptiveModel) -> None:
    """Calibrate the dial for the savings of `SHARES`, if the method needs calibration."""
    if model.needs_calibration:
        savings = [share * model.method.max_saved_tokens for share in SHARES]
        model.calibrate([CALIBRATION_TEXT.to(model.device).arguments], savings)


LEARNING_RATE = 1e-3
LENGTHS = (16, 11, 14, 16)


class ShortTraining:
    """Trains what a subject's spec needs, one step at a time, of `total_steps` as schedules see it; the first step has
    the text of number `first_text`, each later one the next.
    """

    def __init__(self, subject: Subject, total_steps: int, first_text: int = 1) -> None:
        self.total_steps = total_steps
        self.first_text = first_text
        self.model: AdaptiveModel = subject.build(subject.training_spec).train()
        groups = self.model.parameter_groups(LEARNING_RATE)
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=0.001)

    def backward(self, step: int) -> float:
        """Computes the gradient of optimizer step `step` of 1 .. total_steps, and returns its loss."""
        # Numbered by the step, so that a resumed training reads what the whole one reads.
        number = self.first_text + step - 1
        text = random_text(LENGTHS, seed=number, side="right", distinct=True).to(self.model.device)
        labels = text.input_ids.masked_fill(~text.continuation_mask, IGNORED_LABEL)
        self.model.begin_step(step, self.total_steps)
        self.optimizer.zero_grad()
        loss = self.model(**text.as_read.arguments, labels=labels).loss
        loss.backward()
        return float(loss.detach())

    def run(self, first: int, last: int) -> list[float]:
        """Runs the steps `first` .. `last`, both included, and returns their losses."""
        losses = []
        for step in range(first, last + 1):
            losses.append(self.backward(step))
            self.optimizer.step()
        return losses


def trained_model(subject: Subject, folder: Path, training: ShortTraining | None = None) -> AdaptiveModel:
    """A model of the spec in `eval()`, after three steps of the training that it needs, if it needs any. `folder` is
    for the trained model, if another spec is trained.
    """
    training = training or ShortTraining(subject, total_steps=3)
    if training.model.method.trains:
        training.run(1, 3)
    model = training.model.eval()
    if subject.training_spec == subject.spec:
        return model
    model.save_pretrained(folder)
    model = AdaptiveModel.from_pretrained(folder, subject.spec).to(subject.device)
    with torch.no_grad():
        # Copied, since tensors mapped from a file may be aligned differently, and kernels may round differently then.
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    return model
