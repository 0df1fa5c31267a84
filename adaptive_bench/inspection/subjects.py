"""The models that are looked into, by the ways users name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.subject import model_name, saved_folder
from adaptive_bench.method import method_class
from adaptive_bench.model import AdaptiveModel, stored_calibration
from adaptive_bench.model.device import find_device
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.model.text_decisions import check_readable
from adaptive_bench.runs.outcome.trained import check_has_dials, find_checkpoint, find_sparing
from adaptive_bench.runs.planning.backbones import find_backbone
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import manifest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
    name: str, methods: Sequence[MethodSpec], *, out: Path, task: str | None = None, device: str = "auto"
) -> Subjects:
    """Methods of a run with their calibrations, a saved model, or untrained methods on a plain model.

    Args:
        methods: Of a run by default all that decide token by token; on a plain model those that need no calibration.
        out: Where runs are looked for by name.
        task: The calibration stored for it is taken, else the pooled one, else the first by name, which a note says.

    Raises:
        UsageError: No such run or method, or one whose decisions are no mask.
        EnvironmentProblem: There is no such model, or it cannot be read.
    """
    folder = saved_folder(name, out)
    notes: dict[str, None] = {}  # each once, in order
    if folder is None:
        models, tokenizer = _untrained(name, methods)
        called = model_name(name)
    else:
        specs = list(methods) or _deciding(folder)
        models = [_trained(folder, spec, task, notes) for spec in specs]
        tokenizer, called = load_tokenizer(find_checkpoint(folder, str(specs[0]), "--methods")), folder.resolve().name
    place = find_device(device)
    for model in models:
        check_readable(model.to(place).eval())
    return Subjects(called, models, tokenizer, tuple(notes))


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


def _trained(folder: Path, spec: MethodSpec, task: str | None, notes: dict[str, None]) -> AdaptiveModel:
    checkpoint = find_checkpoint(folder, str(spec), "--methods")
    known = stored_calibration.names(checkpoint, spec)
    stored = next((each for each in (task, stored_calibration.POOLED, *known) if each in known), None)
    if stored not in (task, stored_calibration.POOLED, None) and len(known) > 1:
        notes[f"The run calibrated for each of {', '.join(known)}; dial values here are those of {stored}."] = None
    how = find_sparing(folder, str(spec))
    model = AdaptiveModel.from_pretrained(checkpoint, spec, calibration=stored or "auto", **how)
    check_has_dials(folder, model, known)
    return model


def _untrained(name: str, methods: Sequence[MethodSpec]) -> tuple[list[AdaptiveModel], PreTrainedTokenizerBase]:
    source = find_backbone(name)
    if not methods:
        raise UsageError(
            f"A plain model has no method to look into, got {name!r} and no --methods. Name methods that need no "
            f"training, such as random_skip or static_depth, or a run."
        )
    models = [AdaptiveModel.build(source.load_model(), spec, seed=1) for spec in methods]
    for model in models:
        if model.needs_calibration:
            raise UsageError(
                f"The dial of {model.spec} is calibrated on held-out training text, which a plain model comes without, "
                f"got {name!r}. Name a run that trained it, or a method that needs none, such as random_skip."
            )
    return models, source.load_tokenizer()
