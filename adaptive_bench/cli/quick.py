"""`run --quick`: a first look in minutes, by a recipe that is smaller in everything at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_bench.config import QUICK, RunConfig

STEPS, LIMIT, EXAMPLES = 20, 16, 16


def quick(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """The config with fewer steps, documents and calibration examples, and with the mark.

    A value that is smaller already stays, and one that the command line names.

    Args:
        given: Values of the command line, nested like a config.
    """
    named = given.get("train", {})
    steps = config.train.steps if "steps" in named else min(STEPS, config.train.steps)
    train = {"steps": steps, "warmup_steps": min(steps // 4, config.train.warmup_steps)}
    measuring = {
        "limit": min(LIMIT, config.evaluation.limit or LIMIT),
        "calibration_examples": min(EXAMPLES, config.evaluation.calibration_examples),
    }
    values = config.model_dump(mode="json")
    values["train"] |= {key: value for key, value in train.items() if key not in named}
    values["evaluation"] |= {key: value for key, value in measuring.items() if key not in given.get("evaluation", {})}
    return RunConfig.model_validate(values | {"preset": f"{config.preset or 'config'}{QUICK}"})
