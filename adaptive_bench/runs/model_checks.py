"""Checks the model of a run: its family and tokenizer, the recipe, and whether the methods can be put on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from adaptive_bench.backbone import Backbone, weights
from adaptive_bench.config import RunConfig, default_presets
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, explained, one_line
from adaptive_bench.method import Method, config_of, method_of, training_spec
from adaptive_bench.model.adapters import check_installed, check_targets
from adaptive_bench.runs.backbone_source import AGAIN, BackboneSource, empty_model, find_backbone
from adaptive_bench.runs.forecast import Trait
from adaptive_bench.spec import MethodSpec
from adaptive_bench.training.loop import check_trackers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Findings:
    """Collects the errors of checks, which prevent the run, and notes for the user, which do not; each text once."""

    def __init__(self) -> None:
        self.errors: list[AdaptiveBenchError] = []
        self.notes: list[str] = []

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Collect an error that the block raises, so that the next check still runs."""
        try:
            yield
        except AdaptiveBenchError as error:
            said = explained(error)  # now, because the traceback still says where it was raised
            if str(said) not in map(str, self.errors):
                self.errors.append(said)

    def note(self, text: str) -> None:
        """Add a note."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model without reading its weights."""

    source: BackboneSource
    empty: PreTrainedModel  # its tensors have shapes but no values
    unused: tuple[str, ...] = ()  # names of tensors in its folder that belong neither to the decoder nor to its head

    @property
    def family(self) -> str:
        """The model's `model_type`."""
        return str(self.empty.config.model_type)

    @property
    def parameters(self) -> int:
        """Number of parameters; shared ones count once."""
        return sum(parameter.numel() for parameter in self.empty.parameters())

    @property
    def context(self) -> int:
        """Longest sequence in tokens."""
        return int(self.empty.config.max_position_embeddings)

    def __str__(self) -> str:
        return f"{self.source.name} ({self.family}, {size(self.parameters)} parameters, context {self.context:,})"


def model_facts(name: str) -> ModelFacts:
    """Describe a model; of its weight files only the headers are read."""
    return _facts(find_backbone(name))


@lru_cache(maxsize=4)
def _facts(source: BackboneSource) -> ModelFacts:
    facts = ModelFacts(source, empty_model(source))
    Backbone(facts.empty)
    if source.weight_bytes and facts.parameters > source.weight_bytes:  # transformers would make room for all of them
        raise EnvironmentProblem(
            f"The weights of a model have every parameter of its config.json, but that of {source.name!r} describes "
            f"{size(facts.parameters)} parameters and its weights have {size(source.weight_bytes)} bytes. {AGAIN}"
        )
    is_folder = source.is_local and source.forms is None  # a GGUF file or a model of the hub is read as a whole later
    return replace(facts, unused=tuple(source.unused_tensors())) if is_folder else facts


def preset_by_size(model: str) -> str:
    """Name of the preset for models of this size and kind.

    Raises:
        UsageError: No preset, or more than one, is for this model by default; the user has to choose.
        EnvironmentProblem: The model cannot be reached.
    """
    facts = model_facts(model)
    meant = default_presets()
    found = [name for name, models in meant.items() if models.fit(model, facts.family, facts.parameters)]
    if len(found) != 1:
        what = f"the presets {', '.join(found)} all are" if found else "no preset is"
        raise UsageError(
            f"Without --config a model gets a recipe by its size, but {what} for {facts}. Name one of `list configs`, "
            f"or a file of your own, with --config (and --any-model if it is meant for others)."
        )
    return found[0]


def note_weights(facts: ModelFacts, findings: Findings) -> None:
    """Note weights that were dequantized, and tensors that are not measured."""
    if facts.source.forms is not None:
        findings.note(
            f"The weights of {facts.source.name!r} are dequantised from GGUF ({facts.source.forms}) to fp32: they "
            f"keep the rounding of the file, while memory, time and training are those of an fp32 model."
        )
    if facts.unused:
        count = f"{len(facts.unused)} tensor{'s' if len(facts.unused) > 1 else ''}"
        findings.note(
            f"The weights of {facts.source.name!r} have {count} beside the language model (the "
            f"first: {one_line(facts.unused[0], 200)}): no part of what is measured."
        )


def check_recipe(config: RunConfig, facts: ModelFacts, findings: Findings) -> None:
    """Check that the recipe suits this model."""
    check_trackers(config.track)
    weights.check_installed(config.evaluation.quantize)
    Backbone(facts.empty).check_quantizable(config.evaluation.quantize)
    train = config.train
    if not train.steps:
        return
    if train.lora is not None:
        check_installed()
        check_targets(facts.empty, train.lora)
        if facts.source.forms is not None:
            raise UsageError(
                f"With train.lora a checkpoint holds adapters alone, for a model in Hugging Face layout, got the GGUF "
                f"file {facts.source.name!r}. Leave train.lora out, or save the model with save_pretrained first."
            )
    meant = config.for_models
    if meant is not None and not meant.fit(config.model, facts.family, facts.parameters):
        raise UsageError(
            f"The recipe of {config.preset or 'this config'} (rate {train.learning_rate:g}, length {train.max_length}) "
            f"is for {meant}, got the model {facts}. Leave --config out for the recipe of a model of this size, name a "
            f"preset of `list configs` or a file of your own, or say --any-model to use it all the same."
        )
    if train.warmup_steps >= train.steps:
        findings.note(
            f"The learning rate warms up over {train.warmup_steps} steps, but there are only {train.steps}: it never "
            f"reaches its peak. Lower train.warmup_steps."
        )
    if train.max_length > facts.context:
        findings.note(
            f"Training sequences are cut at the model's context of {facts.context} tokens (train.max_length is "
            f"{train.max_length})."
        )


def load_tokenizer(facts: ModelFacts) -> PreTrainedTokenizerBase:
    """Load the tokenizer, and check that it fits this model."""
    tokenizer = facts.source.load_tokenizer()
    where = f"the tokenizer of {facts.source.name!r}"
    if len(tokenizer) == 0:
        raise EnvironmentProblem(f"A model needs a tokenizer, but {where} is empty. Put its files beside config.json.")
    largest, rows = max(tokenizer.get_vocab().values(), default=0), int(facts.empty.config.vocab_size)
    if largest >= rows:
        raise EnvironmentProblem(
            f"A tokenizer's ids are rows of the model's embedding, but {where} goes up to {largest:,} and the model "
            f"has {rows:,} rows. It belongs to another model: put the right one beside config.json."
        )
    if tokenizer.eos_token_id is None:
        raise EnvironmentProblem(
            f"Texts end with an end-of-sequence token, but {where} has none. Set eos_token in tokenizer_config.json, "
            "or choose another --model."
        )
    return tokenizer


def check_methods(config: RunConfig, facts: ModelFacts, findings: Findings) -> dict[str, Trait]:
    """Check that each method can be put on this model, and return what could be learned of it, by spec."""
    traits: dict[str, Trait] = {}
    for spec in map(MethodSpec.parse, config.methods):
        with findings.checking():
            if (trait := examine(spec, facts)) is not None:
                traits[str(spec)] = trait
    return traits


def examine(spec: MethodSpec, facts: ModelFacts) -> Trait | None:
    """What can be learned of a method without values."""
    method = _put_on(facts, spec)
    _put_on(facts, training_spec(spec))  # for its errors: it may be another method
    if method is None:
        return None
    calibrates = method.thresholds is not None or method.fitted is not None or method.solves_dial
    return Trait(float(method.max_saved_tokens), calibrates)


def _put_on(facts: ModelFacts, spec: MethodSpec) -> Method | None:
    config_of(spec)  # raises for wrong parameters, which have nothing to do with the model
    try:
        with torch.device("meta"):
            return method_of(spec, Backbone(facts.empty))
    except AdaptiveBenchError:
        raise
    except Exception as error:
        # Some code cannot run on tensors without values; whether it works with values shows once the model is loaded.
        if "meta" not in str(error):
            raise explained(error, f"the method {spec}") from error
    return None


def size(count: float, billions: str = "B") -> str:
    """A count in short form, such as `3.15 M` for 3,148,224; a billion is `B`, or `G` of bytes."""
    for unit, name in ((1e9, billions), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f}"
