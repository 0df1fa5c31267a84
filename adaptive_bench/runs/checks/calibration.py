"""Whether there is text to calibrate on, where a folder of local data has none and nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_bench.config import RunConfig
from adaptive_bench.data import MissingData
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.cost.estimate import Trait
from adaptive_bench.runs.planning.shuffled import has_control
from adaptive_bench.runs.planning.training_text import read_calibration
from adaptive_bench.spec import MethodSpec


def check_calibration_text(config: RunConfig, traits: Mapping[str, Trait]) -> None:
    """Refuse methods that are calibrated on training text where that is not there.

    Args:
        traits: By spec what is known of it.

    Raises:
        EnvironmentProblem: Names the methods, what is missing and which options do without.
    """
    calibrated = [text for text, trait in traits.items() if trait.calibrates]
    shuffled = [text for text in config.methods if has_control(MethodSpec.parse(text), config)]
    if config.train.steps or not (calibrated or shuffled):
        return
    for task in config.tasks:
        try:
            read_calibration(config, config.seeds[0], task)
        except MissingData as error:
            parts = [f"dials of {', '.join(calibrated)} are calibrated"] if calibrated else []
            parts += ["decisions of --shuffled are drawn"] if shuffled else []
            ways = ["leave these methods out of --methods"] * bool(calibrated)
            ways += ["leave --shuffled out"] * bool(shuffled)
            ways += [
                "calibrate on another task's text, as with --train-on nano_math --set evaluation.calibration=pooled"
            ]
            raise EnvironmentProblem(
                f"Without training steps {task!r} needs training text where {' and '.join(parts)} on it, and there "
                f"it is missing. {error} Or {', or '.join(ways)}."
            ) from error
