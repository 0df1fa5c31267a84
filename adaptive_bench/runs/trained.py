"""Finds the configuration, the records and the trained models of a run."""

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
    """The configuration of a run, with the output folder that the run lies in now, if its records are there.

    Raises:
        UsageError: The folder is not a run's.
        EnvironmentProblem: The run's `config.yaml` is damaged or missing.
    """
    check_run(folder)
    config_in(folder)
    config = load_config(folder / _CONFIG, reads_data=False)
    home = folder.resolve().parent.parent
    return config.model_copy(update={"out": home}) if (home / "records").is_dir() else config


def quantized_as(folder: Path) -> str:
    """The `quantize` form in which a run evaluated its models; `none` if it did not quantize, and for a saved model."""
    return config_of(folder).evaluation.quantize if (folder / _CONFIG).is_file() else "none"


def check_has_dials(folder: Path, model: AdaptiveModel, stored: Sequence[str]) -> None:
    """Refuse a model that has no calibration because its run evaluated it with quantized weights.

    Args:
        model: The model as it was trained.
        stored: Names of the calibrations beside its weights.

    Raises:
        UsageError: The run quantized its models, the model needs a calibration, and none is stored.
    """
    form = quantized_as(folder)
    if form != "none" and not stored and model.needs_calibration:
        raise UsageError(
            f"Models are taken as they were trained, but this run evaluated with --quantize {form}, and its "
            f"calibration of {model.spec} fits no other weights. Give the same run without --quantize "
            "first: its trainings are found again."
        )


def work_of(folder: Path) -> Plan:
    """The plan of a run, read from its manifest, so that neither its model nor its data are needed.

    Raises:
        UsageError: The folder is not a run's.
        EnvironmentProblem: The run's files are damaged.
    """
    return plan_of(config_of(folder), manifest.of_run(folder))


def find_checkpoint(folder: Path, method: str | None, asked: str = "--method") -> Path:
    """The folder of a saved model: the folder itself, or for a run the checkpoint of a method's first seed.

    Args:
        asked: The option that names the method, for messages.

    Raises:
        UsageError: The folder is a run's, and `method` is not one of its methods.
        EnvironmentProblem: The method is not trained yet.
    """
    if not is_run(folder):
        nested = folder / CHECKPOINT
        return nested if nested.is_dir() else folder
    return checkpoint_of(folder, method, asked)[0]


def find_sparing(folder: Path, method: str | None) -> dict[str, Any]:
    """What a method of a run spares, as arguments of `AdaptiveModel.from_pretrained`.

    There are none for a saved model, which stores them itself.
    """
    return {} if method is None or not is_run(folder) else sparing_of(folder, method)
