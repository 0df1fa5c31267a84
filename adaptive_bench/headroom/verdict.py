"""Says in a sentence what a study of headroom found on a task: whether there is anything to decide.

Apart from the study, because a board reads the results of studies without the libraries that made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def verdict(task: Mapping[str, Any]) -> str:
    """A sentence that says at which savings the attainable oracle keeps more than the best static sets.

    Sets and oracles leave layers out of the model as it is, so the verdict does not cover methods that train it
    to do without them.
    """
    if _guesses(task):
        return (
            f"With all layers this model is no better at {task['task']} than guessing, so there is nothing to keep. "
            f"Train it on the task first."
        )
    # Headroom is `None` where documents could be asked only once.
    found = {level["level"]: level["headroom"] for level in task["levels"] if level["reached"] and level["headroom"]}
    if not found:
        reason = task["asked_once"] or "no static set saves that much"
        return f"Whether there is anything to decide on {task['task']} is not known: {reason}."
    without = [level for level, one in found.items() if one["holds_0"]]
    if not without:  # everywhere the interval of the headroom lies above 0
        return "An attainable oracle lies above the best static sets at every saving: there is something to decide."
    percents = ", ".join(f"{100 * level:.0f}" for level in without)
    where = "at any saving" if len(without) == len(found) else f"at {percents} % saved"
    return (
        f"On {task['task']}, leaving layers out of this model as it is, no attainable oracle lies above the best "
        f"static sets {where} (the intervals hold 0 or lie below). Methods that train the model to skip are not "
        f"bounded by this."
    )


def _guesses(task: Mapping[str, Any]) -> bool:
    """Whether the interval with all layers reaches down to the score of a guess, which is known for shares only."""
    low, chance = task["dense"]["low"], task["chance"]
    return task["unit"] == "share" and low is not None and chance is not None and low <= chance
