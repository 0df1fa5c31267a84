"""Measures what adaptive compute could save at most on one model and one task, before anything is trained.

Every figure here is a bound or a description, never a method, because the decisions look at the answer (the model's own
or the right one). Nothing in this package is registered, so no spec can name it and no table can rank it.

The verdict stands here, apart from the study, because a board reads results of studies without the libraries that made
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def verdict(task: Mapping[str, Any]) -> str:
    """A sentence that says at which savings the attainable oracle of a study's task keeps more than the best static
    sets, so whether there is anything to decide.

    Sets and oracles leave layers out of the model as it is, so the verdict does not cover methods that train it
    to do without them.
    """
    low, chance = task["dense"]["low"], task["chance"]
    # The score of a guess is known for shares only.
    if task["unit"] == "share" and low is not None and chance is not None and low <= chance:
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
