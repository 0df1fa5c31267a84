"""Finds the trained models of a run, by its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import manifest
from adaptive_bench.store.records import CHECKPOINT, Record
from adaptive_bench.store.runs import find_run
from adaptive_bench.store.shelves import DEFAULT_OUT


def is_of_run(folder: Path) -> bool:
    """Whether the folder of a saved model is the checkpoint of a record."""
    return folder.name == CHECKPOINT and Record(folder.parent).read("config") is not None


def make_again(folder: Path) -> str:
    """What to do about a saved model that is damaged or not complete, as a sentence: a run does nothing anew that its
    records have.
    """
    if not is_of_run(folder):
        return "Save or copy the model again."
    return (
        f"Remove the folder {str(folder.parent)!r} and give the run's command again (`adaptive-bench retry RUN`): it "
        f"is trained and measured anew."
    )


def checkpoint_of(
    listed: manifest.Manifest, method: str | None, run: Path, asked: str = "--method"
) -> tuple[Path, float | None]:
    """The folder of a run's saved model, the checkpoint of a method's first seed, and the saving it was trained towards
    if it was trained towards one.

    Args:
        listed: What the run wrote.
        run: Its folder, for messages.
        asked: What named the method, for messages.

    Raises:
        UsageError: No method of the run is named.
        EnvironmentProblem: Not trained yet.
    """
    known = list(dict.fromkeys(one.method for one in listed.evaluations))
    methods = ", ".join(known)
    if method is None:
        raise UsageError(f"A run has several methods ({methods}), got {str(run)!r} and no {asked}. Name one.")
    spec = str(MethodSpec.parse(method))
    found = next((one for one in listed.evaluations if one.method == spec), None)
    if found is None:
        raise UsageError(
            f"The run has the methods {methods}, got {asked} {method!r}. {registry.did_you_mean(spec, known)}"
        )
    training = listed.training_of(found)
    listed.check_home()
    record = Record(listed.out / "records" / training.record)
    if record.has_result:
        return record.folder / CHECKPOINT, training.target
    raise EnvironmentProblem(
        f"A model must be trained before it writes, but `{training}` is not finished or its checkpoint was removed. "
        f"Give the run's command again."
    )


def sparing(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a training or an evaluation with this content spares: arguments of `AdaptiveModel.build`."""
    said = content.get("eligible") or {"spared": (), "keep_first": False}
    return {"spared": [tuple(site) for site in said["spared"]], "keep_first": bool(said["keep_first"])}


def sparing_of(listed: manifest.Manifest, method: str) -> dict[str, Any]:
    """What a method of a run spares. An untrained control has the weights of another one, which do not say."""
    spec = str(MethodSpec.parse(method))
    found = next((one for one in listed.evaluations if one.method == spec), None)
    record = None if found is None else Record(listed.out / "records" / found.record)
    return sparing((record and record.read("config")) or {})


def find_trained(
    run: Path | str, method: str, out: Path | str = DEFAULT_OUT
) -> tuple[Path, float | None, dict[str, Any]]:
    """Checkpoint and target of a run by name, beginning of a name, folder or `last`, and what the method spares.

    Raises:
        UsageError: No such run, or no method of it.
        EnvironmentProblem: Not trained yet.
    """
    folder = find_run(run, Path(out))
    listed = manifest.of_run(folder)
    return *checkpoint_of(listed, method, folder, asked="the method"), sparing_of(listed, method)
