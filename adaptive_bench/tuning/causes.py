"""What the trials of a study are made from beside its config: no finished trial outlives a change of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import canonical, key_of

Causes = dict[str, str]  # a digest by what a reader calls it
# Of the keys of records what a trial sets itself; the rest of a recipe stands in the study's definition.
_OF_A_TRIAL = {"method", "method_learning_rate", "recipe", "cell", "base", "seed", "split"}
_CALLED = {
    "backbone": "weights of the model",
    "data": "training text",
    "target": "text of the targets",
    "calibration_sha256": "calibration text",
}


def causes_of(plans: Iterable[Plan]) -> Causes:
    """Digests of what the keys of the plans' records hold, without what trials differ in."""
    found: dict[str, set[str]] = {}
    for whole in plans:
        for content in [
            *(training.content for training in whole.trainings),
            *(sweep.content for sweep in whole.sweeps),
        ]:
            for key, value in content.items():
                if key not in _OF_A_TRIAL:
                    found.setdefault(_name(key, content), set()).add(canonical([key, value]))
    return {name: key_of(sorted(values)) for name, values in sorted(found.items())}


def _name(key: str, content: Mapping[str, Any]) -> str:
    if key == "code":
        return f"code of {MethodSpec.parse(content['method']).name}"
    if key in ("task_code", "local_data"):
        return f"documents of {content['task']}"
    return _CALLED.get(key, key)


def check_causes(whole: Plan, known: Causes) -> None:
    """Refuse a trial that would be made from something else than the trials before it.

    Args:
        whole: The plan of the trial. Its values may add trainings to start from; what both know is compared.

    Raises:
        EnvironmentProblem: Something changed since the study was begun.
    """
    now = causes_of([whole])
    if changed := [name for name, digest in now.items() if known.get(name, digest) != digest]:
        raise EnvironmentProblem(
            f"All trials of a study are made from the same things, but since it was begun there changed: "
            f"{', '.join(changed)}. Put that back, or give another --study: it measures with what is there now."
        )
