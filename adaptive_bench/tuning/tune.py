"""Carries out a whole study: several methods with equal numbers of trials, on validation documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.jobs.worker import check_main
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.run_plan import levels_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import key_of
from adaptive_bench.tuning.presets import PRESETS, Preset
from adaptive_bench.tuning.result import SCHEMA, StudyResult, studies_folder
from adaptive_bench.tuning.search import Objective, Search, TrialRunner
from adaptive_bench.tuning.space import STEPS, Space, check_owned, parse_param

FIRST_SEED = 1001  # first seed of confirmations; boards do not use such seeds
_RECIPE = ("model", "tasks", "seeds", "levels", "match_on", "match_phase", "train_on", "train", "evaluation")


def tune(
    config: RunConfig,
    objective: Objective | None = None,
    trials: int = 12,
    params: Sequence[str] = (),
    *,
    preset: str | None = None,
    confirm: int = 0,
    name: str | None = None,
    reporter: Reporter | None = None,
    jobs: int | None = None,
) -> StudyResult:
    """Look for the best parameters of each method of a run, by equal numbers of trials on validation documents.

    Trials are not read back from the study. The same call draws the same trials again and finds their trainings and
    measurements on disk.

    Args:
        config: The run whose methods are tuned with its recipe.
        objective: By default `area`.
        trials: Number of trials for each method, including the one with its defaults; a preset tries its grid instead.
        params: `NAME=RANGE`; without any, each method's own search space.
        preset: `rates` or `steps`: the grid of one setting of the recipe (`tuning.presets`).
        confirm: Number of other seeds with which the best of each method and its defaults are trained again after all
            trials. The one with the higher mean over them counts, because a best trial is partly luck.
        name: Name of the study; by default made from everything else.

    Raises:
        UsageError: Something to tune does not exist, a task has no validation documents, or the name is taken.
    """
    check_main()
    asks = None if preset is None else PRESETS[preset]
    objective = objective or Objective()
    objective.check(find_task(task).metrics[0] for task in config.tasks)
    for task in map(find_task, config.tasks):
        load_task(task, config.data_dir, config.evaluation.num_fewshot, "validation")  # before anything is trained
    if asks is not None:
        config = asks.checked(config, objective)
    ranges = _asked(asks, params, config)
    specs = list(dict.fromkeys(map(MethodSpec.parse, config.methods)))
    check_owned(specs, ranges)
    spaces = [Space.of(spec, ranges).fitted(config) for spec in specs]
    # A study's name is a digest of this. A confirmation comes after it: it continues the study of the same name.
    definition = _definition(config, objective, spaces) | ({"preset": preset} if preset else {})
    name = name or f"tune-{key_of(definition)[:8]}"
    definition |= {"confirm": list(range(FIRST_SEED, FIRST_SEED + confirm))} if confirm else {}
    folder = studies_folder(config.out) / name
    reporter = reporter or SilentReporter()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _alone(folder):
        _check_same(folder, definition)
        journal = folder / "journal.log"  # for optuna-dashboard; the study itself never reads it
        journal.unlink(missing_ok=True)
        storage = JournalStorage(JournalFileBackend(str(journal.absolute())))
        searches: list[Search] = []
        for space in spaces:
            points = None if asks is None else list(space.grid())  # all values of a preset are tried
            number = trials if points is None else len(points)
            searches.append(Search(f"{name}/{space.spec}", space, config, storage, reporter, number, points))
        finals: list[Search] = []

        def result(notes: Sequence[str] = ()) -> StudyResult:
            tried, confirmed = (tuple(trial for one in some for trial in one.results) for some in (searches, finals))
            fewer = (f"{one.space.spec} has fewer trials: its space has no more." for one in searches if one.exhausted)
            found = StudyResult(name, definition, tried, confirmed, (*fewer, *notes))
            found.write(folder)
            return found

        def to_the_end(some: Sequence[Search], measuring: TrialRunner) -> None:
            while begun := [trial for one in some for trial in one.ask()]:
                measuring.do(begun)
                result()  # after every round, so that a study that is stopped has what it found

        to_the_end(searches, TrialRunner(objective, config, reporter, jobs))
        if confirm:
            again = config.model_copy(update={"seeds": tuple(definition["confirm"])})
            for one in searches:
                if one.best is not None and one.best.values:  # if the defaults are best, there is nothing to confirm
                    # Optuna's own values, not the texts of `values`.
                    points = [{}, one.study.trials[one.best.number].params]
                    called = f"{name}/{one.space.spec}/confirm"
                    finals.append(Search(called, one.space, again, storage, reporter, 2, points))
            to_the_end(finals, TrialRunner(objective, again, reporter, jobs))
        return result(() if asks is None else asks.said(searches, config))


def _asked(asks: Preset | None, params: Sequence[str], config: RunConfig) -> list[str]:
    """The ranges to search, as `NAME=RANGE`; a `UsageError` if a preset is given other parameters than its setting, or
    a study without a preset is given steps.
    """
    names = [parse_param(text)[1] for text in params]
    if asks is None:
        if STEPS in names:
            raise UsageError(f"Trials of a study are trained for equally many steps, got {STEPS}. Give --preset steps.")
        return list(params)
    if names and (names != [asks.setting] or parse_param(params[0])[2].scale != "choice"):
        raise UsageError(
            f"The preset tries given values of {asks.setting}, got --param {', '.join(params)}. Give one as "
            f"--param '{asks.setting}=choice:A|B', or leave --preset out."
        )
    base = getattr(config.train, asks.base)
    return list(params) or [f"{asks.setting}=choice:{'|'.join(f'{base * factor:.12g}' for factor in asks.factors)}"]


def _definition(config: RunConfig, objective: Objective, spaces: Sequence[Space]) -> dict[str, Any]:
    """What defines a study: what it searches, by which objective, and with which recipe."""
    searched = {str(space.spec): {name: str(search) for name, search in space.ranges.items()} for space in spaces}
    recipe = config.model_dump(mode="json", include=set(_RECIPE))
    levels = levels_of(objective.config(config))
    return {
        "schema": SCHEMA,
        "objective": str(objective),
        "documents": "validation",
        "space": searched,
        "levels": {name: list(levels) for name in config.tasks},
        # Only if it is set, so that studies without it keep the digest that names them.
        "recipe": recipe | ({"chat_template": True} if config.chat_template else {}),
    }


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a study's folder."""
    with atomic.writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "study.lock", timeout=0):
            yield
    except Timeout:
        raise UsageError(
            f"One process at a time works on a study, but another one is working on {folder.name!r}. Wait for it, or "
            f"tune other methods in a --study of their own."
        ) from None


def _check_same(folder: Path, definition: Mapping[str, Any]) -> None:
    """Refuse a different study under an existing name; more trials, or a confirmation, continue the study."""
    try:
        before = StudyResult.read(folder / "result.json").definition
    except EnvironmentProblem:  # there is no result yet, or a damaged one, which is written anew
        return
    names = {*before, *definition} - {"confirm"}
    if changed := sorted(name for name in names if before.get(name) != definition.get(name)):
        raise UsageError(
            f"A study keeps the definition it was begun with, but in {folder.name!r} these would change: "
            f"{', '.join(changed)}. Give another --study; trainings that are on disk are not made again."
        )
