"""Finds the trained model of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_bench.config import RunConfig
from adaptive_bench.config_file import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.runs.run_plan import Plan, plan_of
from adaptive_bench.store import manifest
from adaptive_bench.store.manifest import checkpoint_of, sparing_of
from adaptive_bench.store.records import CHECKPOINT
from adaptive_bench.store.runs import check_run, config_in, is_run

if TYPE_CHECKING:
    from adaptive_bench.model import AdaptiveModel


_CONFIG = "config.yaml"


def config_of(folder: Path) -> RunConfig:
    """The configuration of a run. Its records are looked for beside it, wherever the output folder lies by now.

    Raises:
        UsageError: The folder is not one of a run.
        EnvironmentProblem: Its `config.yaml` is damaged, or not there.
    """
    check_run(folder)
    config_in(folder)
    config = load_config(folder / _CONFIG, reads_data=False)
    home = folder.resolve().parent.parent
    return config.model_copy(update={"out": home}) if (home / "records").is_dir() else config


def quantized_as(folder: Path) -> str:
    """The form in which a run evaluated its models; `none` as they were trained, and of a saved model."""
    return config_of(folder).evaluation.quantize if (folder / _CONFIG).is_file() else "none"


def check_has_dials(folder: Path, model: AdaptiveModel, stored: Sequence[str]) -> None:
    """Refuse a run whose dial values belong to its quantized models, where no run without stored others.

    Args:
        model: As trained.
        stored: Names of the calibrations beside its weights.

    Raises:
        UsageError: There are none, and the model needs one.
    """
    form = quantized_as(folder)
    if form != "none" and not stored and model.needs_calibration:
        raise UsageError(
            f"Models are taken as they were trained, but this run evaluated with --quantize {form}, and what "
            f"{model.spec} was calibrated to there fits no other weights. Give the same run without --quantize "
            "first: its trainings are found again."
        )


def work_of(folder: Path) -> Plan:
    """What a run consists of and where it is. Neither its model nor its data need to be here.

    Raises:
        EnvironmentProblem: The folder is not one of a run, or was damaged.
    """
    return plan_of(config_of(folder), manifest.of_run(folder))


def find_checkpoint(folder: Path, method: str | None, asked: str = "--method") -> Path:
    """The folder of a saved model: the folder itself, or in a run the checkpoint of a method's first seed.

    Args:
        asked: The option that named the method, for messages.

    Raises:
        UsageError: A run, and no method of it.
        EnvironmentProblem: Not trained yet.
    """
    if not is_run(folder):
        nested = folder / CHECKPOINT
        return nested if nested.is_dir() else folder
    return checkpoint_of(manifest.of_run(folder), method, folder, asked)[0]


def find_sparing(folder: Path, method: str | None) -> dict[str, Any]:
    """What a method of a run spares, as arguments of `AdaptiveModel.from_pretrained`; none for a saved model, which
    knows it.
    """
    return {} if method is None or not is_run(folder) else sparing_of(manifest.of_run(folder), method)
