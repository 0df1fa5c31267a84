"""Measures what the config of a run leaves open, once for a folder of runs: its precision and the sites it spares.

`train.precision: auto` means bf16 if a short training pass at the model's width is faster in it, else fp32. Weights,
the decisions of methods and all evaluation stay in fp32 either way. `eligible` lets tokens skip everywhere, or only at
sites that are cheap to skip. What was measured is kept beside the records, so that every method of a folder is treated
alike, even if another machine continues the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.benchmark import Timer
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError
from adaptive_bench.method import method_class
from adaptive_bench.model.interventions import SiteCosts, site_costs
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.backbone_source import BackboneSource, empty_model, find_backbone, find_device
from adaptive_bench.runs.training_text import draw_site_text
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import examples_fingerprint, key_of
from adaptive_bench.task import Example
from adaptive_bench.training.encoding import calibration_batches, encode_examples, padding_id

_TIMED_S = 0.4  # least time that passes in one precision are measured for
# Sequences, tokens of each, layers and vocabulary of what is timed, at most. One sequence tells little: where bf16
# trains the whole model twice as fast, measurements with one were from 1.1 to 1.6, and 1.9 to 2.9 with four.
_TIMED_SEQUENCES, _TIMED_TOKENS, _TIMED_LAYERS, _TIMED_WORDS = 4, 256, 1, 2048
_WORTH = 1.2  # least speedup for which bf16 is chosen
_SITES_VERSION = 1  # raised when the measurement of sites changes
_SITE_TOKENS, _SITE_LENGTH = 256, 64  # tokens of the text, at most a few more, and of one example
_UNSPARED_PRESETS = ("paper_", "nano")  # beginnings of the names of presets for which `auto` spares no site
_known: dict[Path | str, dict[str, Any]] = {}  # what `kept` gave, as a run is planned more than once


def kept(file: Path, choose: Callable[[], dict[str, Any]], known_as: str | None = None) -> dict[str, Any]:
    """Read a choice from a JSON file; if there is none or it cannot be read, choose now and write the choice there.

    If several processes choose at the same time, the first choice stays. This process remembers it by the file's path,
    so that folders may differ, or as `known_as`.
    """
    name = known_as or file.absolute()
    if (found := _known.get(name) or _read(file)) is None:
        chosen = choose()
        # Asked again, since another process may have chosen in the meantime.
        if (found := _read(file)) is None:
            found = chosen
            with suppress(EnvironmentProblem):  # a plan can be made of a folder that cannot be written
                atomic.write_json(file, chosen)
    _known[name] = found
    return found


def _read(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None


def few_layers(shape: PretrainedConfig, layers: int, words: int) -> PreTrainedModel:
    """A model of this width with at most `layers` layers and `words` vocabulary entries; its tensors have no values."""
    few = deepcopy(shape)
    few.num_hidden_layers, few.vocab_size = min(shape.num_hidden_layers, layers), min(shape.vocab_size, words)
    few.pad_token_id = None  # it may lie outside of the smaller vocabulary
    if getattr(few, "layer_types", None):
        few.layer_types = few.layer_types[: few.num_hidden_layers]
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(few, dtype=torch.float32)
    return model


@torch.no_grad()
def with_values(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The same model on a device, with every number set to 0.01."""
    # Not what the memory happened to hold: arithmetic on subnormal numbers is slow.
    model = model.to_empty(device=device).eval()
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.fill_(0.01)
    return model


def seconds(model: PreTrainedModel, shape: tuple[int, int], least_s: float, *, bf16: bool, backward: bool) -> float:
    """Median time of passes over tokens of this shape [B, S], measured for `least_s` seconds: with products of matrices
    in bf16, though weights stay in fp32, and with a backward pass, as in training.
    """
    device = next(model.parameters()).device
    ids = torch.ones(shape, dtype=torch.long, device=device)

    def once() -> None:
        with torch.set_grad_enabled(backward), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = model(ids, use_cache=False).logits
        if backward:
            logits.float().mean().backward()

    timer = Timer("once()", globals={"once": once}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=least_s).median)


class Chosen(NamedTuple):
    """The precision of the trainings in a folder, and the measured speedup of bf16 over fp32 (0 if emulated)."""

    precision: Literal["fp32", "bf16"]
    speedup: float

    def __str__(self) -> str:
        why = f"measured {self.speedup:.1f}x as fast as fp32" if self.speedup else "would be emulated here"
        return f"{self.precision} (bf16 {why})"


def with_precision(config: RunConfig) -> RunConfig:
    """The config with the precision that `auto` means for its model, device and folder.

    The config is unchanged if its model or device cannot be reached; the checks of the run report that.
    """
    with suppress(AdaptiveBenchError):
        if config.train.precision == "auto":
            train = config.train.model_copy(update={"precision": chosen(config).precision})
            return config.model_copy(update={"train": train})
    return config


def chosen(config: RunConfig) -> Chosen:
    """The choice for a config that says `auto`, read from disk or measured."""
    if not config.train.steps:
        return Chosen("fp32", 1.0)
    source, device = find_backbone(config.model), find_device(config.device)
    about = {"backbone": source.fingerprint, "device": device.type}
    file = config.out / "precision" / f"{key_of(about)}.json"
    said = kept(file, lambda: about | _measured_precision(source, device)._asdict())
    return Chosen("bf16" if said.get("precision") == "bf16" else "fp32", float(said.get("speedup", 1.0)))


def _measured_precision(source: BackboneSource, device: torch.device) -> Chosen:
    if _emulates_bf16(device):
        return Chosen("fp32", 0.0)  # some thirty times as slow on a CPU: not worth the seconds that measuring takes
    model = with_values(few_layers(empty_model(source).config, _TIMED_LAYERS, _TIMED_WORDS), device)
    passes = _TIMED_SEQUENCES, min(_TIMED_TOKENS, model.config.max_position_embeddings)
    fp32, bf16 = (seconds(model, passes, _TIMED_S, bf16=each, backward=True) for each in (False, True))
    return Chosen("bf16" if fp32 / bf16 >= _WORTH else "fp32", fp32 / bf16)


def _emulates_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return not torch.cuda.is_bf16_supported(including_emulation=False)
    # Only oneDNN, torch's library of CPU kernels, knows.
    known = device.type == "cpu" and torch.backends.mkldnn.is_available()
    return known and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def spares(spec: MethodSpec, config: RunConfig) -> bool:
    """Whether a method of a run leaves alone the sites that measuring finds costly."""
    if config.eligible == "all" or not method_class(spec).spares:
        return False
    of_paper = (config.preset or "").startswith(_UNSPARED_PRESETS) or config.model in registry.names("models")
    return config.eligible == "measured" or (not of_paper and spec.semantics != "paper")


def measured_sites(
    config: RunConfig, source: BackboneSource, reporter: Reporter, *, measures: bool = True
) -> tuple[SiteCosts | None, bool]:
    """The costs of the sites of a run's model, read from disk or measured; `None` if no method of the run spares any.

    If nothing may be measured, the second value says whether costs that are not on disk are left to be measured.
    """
    if not any(spares(MethodSpec.parse(text), config) for text in config.methods):
        return None, False
    text = draw_site_text(config)
    if not text:
        if config.eligible == "auto":
            return None, False
        raise UsageError(
            f"Sites are measured on held-out training text, but {', '.join(config.tasks)} has none. Name a task that "
            f"has some with --train-on, or let tokens skip everywhere with --eligible all."
        )
    about = {"version": _SITES_VERSION, "backbone": source.fingerprint, "text": examples_fingerprint(text)}
    about |= {"chat_template": True} if config.chat_template else {}
    key = key_of(about)
    file = config.out / "sites" / f"{key}.json"
    if not measures and key not in _known and not file.is_file():
        return None, True
    known = kept(file, lambda: about | _measured_sites(config, source, text, reporter).to_json(), key)
    return SiteCosts.from_json(known), False


def key_entry(costs: SiteCosts | None, spec: MethodSpec, config: RunConfig) -> dict[str, Any]:
    """What spared sites add to the keys of a spec's trainings and evaluations; empty if no site is spared."""
    if costs is None or not (costs.spared or costs.keep_first) or not spares(spec, config):
        return {}
    return {"eligible": {"spared": [list(site) for site in sorted(costs.spared)], "keep_first": costs.keep_first}}


def _measured_sites(config: RunConfig, source: BackboneSource, text: list[Example], reporter: Reporter) -> SiteCosts:
    model: Any = source.load_model()
    model = model.to(find_device(config.device)).eval()
    tokenizer = source.load_tokenizer()
    length = min(_SITE_LENGTH, config.train.max_length, model.config.max_position_embeddings)
    encoded, tokens = [], 0
    for example in encode_examples(text, tokenizer, length, SilentReporter(), chat_template=config.chat_template):
        if tokens < _SITE_TOKENS:
            encoded.append(example)
            tokens += len(example.token_ids)
    batches = calibration_batches(encoded, padding_id(tokenizer), len(encoded), model.device)
    with reporter.task("measure sites", total=2 * model.config.num_hidden_layers) as task:  # two branches a layer
        found = site_costs(model, batches, task=task)
    reporter.line(f"eligible: {found.described()}")
    return found
