"""The models a study is about, by the ways users name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.method import method_class
from adaptive_bench.model import AdaptiveModel, stored_calibration
from adaptive_bench.model.hardware import find_device
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.trained import check_has_dials, find_checkpoint, find_sparing
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import manifest
from adaptive_bench.store.keys import folder_digest
from adaptive_bench.store.runs import DEFAULT_OUT, LAST, find_run, run_folders

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Files of a run, of a checkpoint, and of the record around one.
_OF_A_RUN = ("config.yaml", "adaptive.json", "checkpoint/adaptive.json")
# Trained as a plain model, so that its layers are those of one.
_PLAIN = ("dense", "base")


@dataclass(frozen=True)
class Subject:
    """The model that is studied.

    Attributes:
        name: As the user wrote it; of a folder the last part, since records are read on other machines.
        fingerprint: Of its files.
        model: In `eval()` mode, in fp32.
    """

    name: str
    fingerprint: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def find_subject(name: str, device: str = "auto", out: Path = DEFAULT_OUT) -> Subject:
    """A registered model, a folder in Hugging Face layout, a hub id; a run (its dense model), or a checkpoint.

    Args:
        out: Where runs are looked for by name.

    Raises:
        UsageError: The checkpoint is not of a dense model.
        EnvironmentProblem: There is no such model, or it cannot be read.
    """
    place, saved_in = find_device(device), saved_folder(name, out)
    if saved_in is not None:
        folder = find_checkpoint(saved_in, "dense", "the model that headroom is measured on,")
        saved = read_saved(folder)
        if saved.spec.name not in _PLAIN:
            raise UsageError(
                f"Headroom is measured on a model that runs all of its layers, but the one in {str(folder)!r} was "
                f"trained as {saved.spec}. Name a run with the method dense, or another model."
            )
        model = AdaptiveModel.from_pretrained(folder).backbone_model
        called = saved_in.resolve().name
        return Subject(called, folder_digest(folder), model.eval().to(place), load_tokenizer(folder))
    source = find_backbone(name)
    return Subject(model_name(name), source.fingerprint, source.load_model().eval().to(place), source.load_tokenizer())


@dataclass(frozen=True)
class Subjects:
    """Models of one tokenizer, each with its method, in `eval()` mode.

    Attributes:
        name: As the user wrote it; of a folder the last part.
        notes: What a reader should know of their dial values, one sentence each.
    """

    name: str
    models: list[AdaptiveModel]
    tokenizer: PreTrainedTokenizerBase
    notes: Sequence[str] = ()


def find_subjects(
    name: str,
    methods: Sequence[MethodSpec],
    *,
    out: Path,
    task: str | None = None,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    asked: str = "--methods",
) -> Subjects:
    """Methods of a run with their calibrations, a saved model, or untrained methods on a plain model.

    Args:
        methods: Of a run by default all that decide token by token; on a plain model those that need no calibration.
        out: Where runs are looked for by name.
        task: The calibration stored for it is taken, else the pooled one, else the first by name, which a note says.
        asked: The option that named the methods, for messages.

    Raises:
        UsageError: No such run or method, or one that has to be calibrated, of a plain model.
        EnvironmentProblem: There is no such model, or it cannot be read.
    """
    folder = saved_folder(name, out)
    notes: dict[str, None] = {}  # each once, in order
    if folder is None:
        models, tokenizer = _untrained(name, methods, dtype)
        called = model_name(name)
    else:
        specs = list(methods) or _deciding(folder)
        checkpoints = [find_checkpoint(folder, str(spec), asked) for spec in specs]
        models = [_trained(folder, *each, task, notes, dtype) for each in zip(checkpoints, specs, strict=True)]
        tokenizer, called = load_tokenizer(checkpoints[0]), folder.resolve().name
    place = find_device(device)
    return Subjects(called, [model.to(place).eval() for model in models], tokenizer, tuple(notes))


def _deciding(folder: Path) -> list[MethodSpec]:
    """Of a run the methods that decide by the token; of a saved model its own."""
    if not (folder / "config.yaml").is_file():
        return [read_saved(find_checkpoint(folder, None)).spec]
    known = dict.fromkeys(one.method for one in manifest.of_run(folder).evaluations)
    found = [spec for spec in map(MethodSpec.parse, known) if method_class(spec).adapts]
    if not found:
        raise UsageError(
            f"What is looked into are methods that decide token by token, but the run has {', '.join(known)}. Name "
            f"some of them with --methods to look all the same, or another run."
        )
    return found


def _trained(
    folder: Path, checkpoint: Path, spec: MethodSpec, task: str | None, notes: dict[str, None], dtype: torch.dtype
) -> AdaptiveModel:
    known = stored_calibration.names(checkpoint, spec)
    stored = next((each for each in (task, stored_calibration.POOLED, *known) if each in known), None)
    if stored not in (task, stored_calibration.POOLED, None) and len(known) > 1:
        notes[f"The run calibrated for each of {', '.join(known)}; dial values here are those of {stored}."] = None
    how = {"dtype": dtype, **find_sparing(folder, str(spec))}
    model = AdaptiveModel.from_pretrained(checkpoint, spec, calibration=stored or "auto", **how)
    check_has_dials(folder, model, known)
    return model


def _untrained(
    name: str, methods: Sequence[MethodSpec], dtype: torch.dtype
) -> tuple[list[AdaptiveModel], PreTrainedTokenizerBase]:
    source = find_backbone(name)
    if not methods:
        raise UsageError(
            f"A plain model has no method to look into, got {name!r} and no --methods. Name methods that need no "
            f"training, such as random_skip or static_depth, or a run."
        )
    loaded: list[Any] = [source.load_model() for _ in methods]
    models = [AdaptiveModel.build(one.to(dtype), spec, seed=1) for one, spec in zip(loaded, methods, strict=True)]
    for model in models:
        if model.needs_calibration:
            raise UsageError(
                f"The dial of {model.spec} is calibrated on held-out training text, which a plain model comes without, "
                f"got {name!r}. Name a run that trained it, or a method that needs none, such as random_skip."
            )
    return models, source.load_tokenizer()


def saved_folder(name: str, out: Path = DEFAULT_OUT) -> Path | None:
    """The folder of a run or of a saved model that a name stands for; `None` where it stands for a plain model.

    Args:
        out: Where runs are looked for by name.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir() and name not in registry.names("models") and _begins_a_run(name, out):
        folder = find_run(name, out)
    return folder if any((folder / mark).is_file() for mark in _OF_A_RUN) else None


def model_name(name: str) -> str:
    """What a plain model is called in records: of a folder the last part."""
    folder = Path(name).expanduser()
    return folder.resolve().name if folder.is_dir() else name


def _begins_a_run(name: str, out: Path) -> bool:
    path = Path(name)
    if path.name != name:  # `<out>/<name>`, unless it is a hub id
        out, name = path.parent, path.name
        if not out.is_dir():
            return False
    return name == LAST or any(folder.name.startswith(name) for folder in run_folders(out))
