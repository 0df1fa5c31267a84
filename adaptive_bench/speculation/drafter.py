"""The model that drafts and verifies, by the ways users name one, and what drafts in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.subject import model_name, saved_folder
from adaptive_bench.model import AdaptiveModel, stored_calibration
from adaptive_bench.model.device import find_device
from adaptive_bench.model.saving import load_tokenizer
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.runs.outcome.trained import check_has_dials, find_checkpoint, find_sparing
from adaptive_bench.runs.planning.backbones import find_backbone
from adaptive_bench.spec import MethodSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Of a plain model, where no method is named: one that needs neither training nor calibration.
_UNTRAINED = "static_depth"


@dataclass(frozen=True)
class Drafter:
    """A model and how it drafts.

    Attributes:
        name: As the user wrote it; of a folder the last part.
        trained_as: Spec of the weights; of a plain model the spec that it is used with.
        model: In `eval()` mode. At its dial's `skip_nothing` it verifies.
    """

    name: str
    trained_as: str
    model: AdaptiveModel
    tokenizer: PreTrainedTokenizerBase

    def at(self, saving: float) -> float:
        """The dial for a share of token-branches that drafting skips.

        Raises:
            UsageError: The method cannot save that much, or is not calibrated for it.
        """
        self.model.saving = saving
        dial, self.model.dial = self.model.dial, self.model.method.dial.skip_nothing
        return dial


def find_drafter(
    name: str,
    method: str | None,
    *,
    out: Path,
    tasks: Sequence[str],
    precision: str = "fp32",
    device: str = "auto",
) -> Drafter:
    """A run's or a saved model's method with its calibration, or an untrained one on a plain model.

    Args:
        method: Spec; of a run one of its own, of a plain model `static_depth` by default.
        out: Where runs are looked for by name.
        tasks: The calibration stored for the first of them is taken, else the pooled one.

    Raises:
        UsageError: No such run or method; a plain model and a method that has to be calibrated; a method that
            skips in prompts alone.
        EnvironmentProblem: There is no such model, or it cannot be read.
    """
    place, dtype = find_device(device), PRECISIONS[precision]
    spec = None if method is None else MethodSpec.parse(method)
    folder = saved_folder(name, out)
    if folder is None:
        source = find_backbone(name)
        spec = spec or MethodSpec.parse(_UNTRAINED)
        backbone_model: Any = source.load_model()
        model = AdaptiveModel.build(backbone_model.to(dtype), spec, seed=1)
        if model.needs_calibration:
            raise UsageError(
                f"The dial of {spec} is calibrated on held-out training text, which a plain model comes without, got "
                f"{name!r}. Name a run that trained it, or a method that needs none, such as {_UNTRAINED}."
            )
        tokenizer, called = source.load_tokenizer(), model_name(name)
    else:
        checkpoint = find_checkpoint(folder, method)
        spec = spec or read_saved(checkpoint).spec
        known = stored_calibration.names(checkpoint, spec)
        stored = next((each for each in (tasks[0], stored_calibration.POOLED) if each in known), "auto")
        if stored == "auto" and len(known) > 1:
            raise UsageError(
                f"A draft takes what {spec} was calibrated to on the first task, or the pooled one, got {tasks[0]!r}. "
                f"Give one of {', '.join(known)} first in --tasks."
            )
        how = {"dtype": dtype, **find_sparing(folder, method)}
        model = AdaptiveModel.from_pretrained(checkpoint, spec, calibration=stored, **how)
        check_has_dials(folder, model, known)
        tokenizer, called = load_tokenizer(checkpoint), folder.resolve().name
    model = model.to(place).eval()
    if model.method.prompts_only:
        raise UsageError(
            f"A draft is text that is written with the dial turned, but {spec} skips in prompts alone: its drafts "
            "would be the full model's. Name another method."
        )
    return Drafter(called, str(spec), model, tokenizer)
