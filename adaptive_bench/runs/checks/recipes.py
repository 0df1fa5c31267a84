"""Which preset a model gets where the user names none and no preset names it."""

from __future__ import annotations

from adaptive_bench.config_file import default_presets
from adaptive_bench.errors import UsageError
from adaptive_bench.runs.checks.model import model_facts


def preset_by_size(model: str) -> str:
    """Name of the preset that takes models of this size and kind.

    Raises:
        UsageError: No preset is for it by default; the user has to choose.
        EnvironmentProblem: The model cannot be reached.
    """
    facts = model_facts(model)
    meant = default_presets()
    found = [name for name, models in meant.items() if models.fit(model, facts.family, facts.parameters)]
    if len(found) != 1:
        what = f"the presets {', '.join(found)} all are" if found else "no preset is"
        raise UsageError(
            f"Without --config a model gets a recipe by its size, but {what} for {facts}. Name one of `list "
            f"configs`, or "
            "a file of your own, with --config (and --any-model if it is meant for others)."
        )
    return found[0]
