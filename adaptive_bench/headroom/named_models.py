"""Finds the models of a study from the names that users give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.hardware import find_device
from adaptive_bench.method import method_class
from adaptive_bench.model import AdaptiveModel, stored_calibration
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.runs.backbone_source import BackboneSource, find_backbone
from adaptive_bench.runs.run_table import model_name
from adaptive_bench.runs.trained import check_has_dials, find_model
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import manifest
from adaptive_bench.store.keys import folder_digest
from adaptive_bench.store.runs import DEFAULT_OUT, LAST, find_run, run_folders

# Files that mark the folder of a run, of a checkpoint, and of the record around a checkpoint.
_OF_A_RUN = ("config.yaml", "adaptive.json", "checkpoint/adaptive.json")


@dataclass(frozen=True)
class Subjects:
    """Models that share a tokenizer, each with its method, in `eval()` mode.

    Attributes:
        name: As the user wrote it; for a folder only its last part, since records are read on other machines.
        source: The checkpoint of the first model, or the plain model.
        notes: Notes about dial values.
    """

    name: str
    models: list[AdaptiveModel]
    tokenizer: PreTrainedTokenizerBase
    source: Path | BackboneSource
    notes: Sequence[str] = ()

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the first model's files."""
        return folder_digest(self.source) if isinstance(self.source, Path) else self.source.fingerprint


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
        methods: The methods to load. By default, for a run, all methods that decide token by token. On a plain model
            only methods that need no calibration work.
        out: Folder in which runs are looked up by name.
        task: The task whose stored calibration is used; without one the pooled calibration, else the first by name,
            which a note reports.
        asked: The option that named the methods, for messages.
    """
    folder = saved_folder(name, out)
    notes: dict[str, None] = {}  # each once, in order
    source: Path | BackboneSource
    if folder is None:
        source = find_backbone(name)
        models, tokenizer, called = _untrained(source, methods, dtype), source.load_tokenizer(), model_name(name)
    else:
        specs = list(methods) or _deciding(folder)
        found = [find_model(folder, str(spec), asked) for spec in specs]
        models = [
            _trained(folder, checkpoint, spec, task, notes, {"dtype": dtype, **spared})
            for spec, (checkpoint, spared) in zip(specs, found, strict=True)
        ]
        source = found[0][0]
        tokenizer, called = load_tokenizer(source), folder.resolve().name
    place = find_device(device)
    return Subjects(called, [model.to(place).eval() for model in models], tokenizer, source, tuple(notes))


def _deciding(folder: Path) -> list[MethodSpec]:
    """The methods of a run that decide token by token, or the method of a saved model."""
    if not (folder / "config.yaml").is_file():
        return [read_saved(find_model(folder, None)[0]).spec]
    # Specs as they were evaluated, which may be several for one training.
    known = dict.fromkeys(one.method for one in manifest.of_run(folder).evaluations)
    found = [spec for spec in map(MethodSpec.parse, known) if method_class(spec).adapts]
    if not found:
        raise UsageError(
            f"By default the methods that decide token by token are inspected, but the run only has "
            f"{', '.join(known)}. Name some of them with --methods to inspect them anyway, or name another run."
        )
    return found


def _trained(
    folder: Path, checkpoint: Path, spec: MethodSpec, task: str | None, notes: dict[str, None], how: dict[str, Any]
) -> AdaptiveModel:
    known = stored_calibration.names(checkpoint, spec)
    # The task's own calibration, else that of all tasks together, else the first by name.
    stored = next((each for each in (task, stored_calibration.POOLED, *known) if each in known), None)
    if stored not in (task, stored_calibration.POOLED, None) and len(known) > 1:
        notes[f"The run calibrated for each of {', '.join(known)}; dial values here are those of {stored}."] = None
    model = AdaptiveModel.from_pretrained(checkpoint, spec, calibration=stored or "auto", **how)
    check_has_dials(folder, model, known)
    return model


def _untrained(source: BackboneSource, methods: Sequence[MethodSpec], dtype: torch.dtype) -> list[AdaptiveModel]:
    if not methods:
        raise UsageError(
            f"A plain model has no method to inspect, got {source.name!r} and no --methods. Name methods that need no "
            f"training, such as random_skip or static_depth, or a run."
        )
    loaded: list[Any] = [source.load_model() for _ in methods]
    models = [AdaptiveModel.build(one.to(dtype), spec, seed=1) for one, spec in zip(loaded, methods, strict=True)]
    for model in models:
        if model.needs_calibration:
            raise UsageError(
                f"The dial of {model.spec} is calibrated on held-out training text, which a plain model does not have, "
                f"got {source.name!r}. Name a run that trained it, or a method that needs none, such as random_skip."
            )
    return models


def saved_folder(name: str, out: Path = DEFAULT_OUT) -> Path | None:
    """The folder of the run (looked up in `out`) or saved model that a name stands for; `None` for a plain model."""
    folder = Path(name).expanduser()
    # `nano` stands for the model, although the names of all runs on it begin with it.
    if not folder.is_dir() and name not in registry.names("models"):
        home = out if folder.name == name else folder.parent  # of `<out>/<name>`; of a hub id there is none
        begins = any(one.name.startswith(folder.name) for one in run_folders(home))
        if begins or (folder.name == LAST and (home == out or home.is_dir())):
            folder = find_run(name, out)
    return folder if any((folder / mark).is_file() for mark in _OF_A_RUN) else None
