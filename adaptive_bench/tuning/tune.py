"""A whole study: several methods with equal trials, in turns, in a storage that any number of workers share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from adaptive_bench import spawn
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.plan import plan
from adaptive_bench.runs.work.resources import useful_processes
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.store.keys import key_of
from adaptive_bench.tuning.causes import Causes, causes_of
from adaptive_bench.tuning.helpers import helped
from adaptive_bench.tuning.journal import Journal
from adaptive_bench.tuning.objective import Objective
from adaptive_bench.tuning.page import write_page
from adaptive_bench.tuning.refusals import Refusals, fitted
from adaptive_bench.tuning.result import SCHEMA, StudyResult, TrialResult, study_folder
from adaptive_bench.tuning.space import METHOD_RATE, Space, check_owned, recipe_values
from adaptive_bench.tuning.study import Study, TrialRunner
from adaptive_bench.tuning.trial import Trials

FIRST_SEED = 1001  # of those that confirm: no board uses them
_RECIPE = ("model", "tasks", "seeds", "levels", "match_on", "match_phase", "train_on", "train", "evaluation")


def tune(
    config: RunConfig,
    objective: Objective,
    trials: int,
    params: Sequence[str] = (),
    *,
    confirm: int = 0,
    name: str | None = None,
    storage: str | None = None,
    reporter: Reporter | None = None,
    jobs: int | None = None,
    workers: int | None = 1,
) -> StudyResult:
    """Look for the best parameters of each method of a run, by equal numbers of trials on validation documents.

    Args:
        config: Its methods are tuned with its recipe; one target.
        trials: For each method, the one with its defaults included. A study that has as many is done.
        params: `NAME=RANGE`; without any, each method's own search space.
        confirm: Seeds of their own with which the best of each method and its defaults are trained again once all
            trials are over. The one with the higher mean over them stands: a best trial is partly luck.
        name: Of the study; by default one that follows from everything else, so the same command continues.
        storage: An Optuna storage URL; by default a journal file in the folder of the study.
        jobs: Processes for the work of one trial.
        workers: Processes that share the trials, this one included; `None` decides as `run` does about `jobs`.

    Raises:
        UsageError: Something to tune does not exist, a task has no validation documents, or the study was begun with
            something else.
        EnvironmentProblem: The storage cannot be reached.
    """
    spawn.check_main()
    if config.train.target is not None and len(config.train.target) > 1:
        raise UsageError(f"Trials are compared at one target, got train.target={list(config.train.target)}. Give one.")
    if name is not None:
        study_folder(name, config.out)  # before minutes go by
    reporter = reporter or SilentReporter()
    specs = [MethodSpec.parse(text) for text in config.methods]
    check_owned(specs, params)
    spaces = [Space.of(spec, params) for spec in dict.fromkeys(specs)]
    spaces = [fitted(space, Refusals(space, config)) for space in spaces]
    for task in map(find_task, config.tasks):
        objective.check(task.metrics[0])
        load_task(task, config.data_dir, config.evaluation.num_fewshot, "validation")  # before anything is trained
    again = config.model_copy(update={"seeds": tuple(range(FIRST_SEED, FIRST_SEED + confirm))})
    causes, causes_again = (_causes(one, objective, spaces) for one in (config, again))
    made_from = {"made_from": causes} | ({"confirmed_from": causes_again} if confirm else {})
    definition = (
        _definition(config, objective, spaces) | ({"confirm": list(again.seeds)} if confirm else {}) | made_from
    )
    name = name or f"tune-{key_of(definition)[:8]}"
    folder = study_folder(name, config.out)
    _begin(folder, definition)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    opened = _open(storage, folder)
    studies = {
        space: Study(
            f"{name}/{space.spec}", opened, folder / str(space.spec), space, trials, why=Refusals(space, config)
        )
        for space in spaces
    }
    for study in studies.values():
        study.check_definition(key_of(definition))
    finals: dict[Space, Study] = {}
    if workers is None:
        workers = 1 if jobs else useful_processes(config)
    helpers = min(workers, sum(study.left() for study in studies.values())) - 1

    def work(share: int | None) -> None:
        runners = {space: Trials(space, objective, config, causes, reporter, share).run_trial for space in spaces}
        in_turns(studies, runners)
        if confirm:
            for space, study in studies.items():
                study.finish(runners[space])
                if study.best is not None and study.best.params:
                    finals[space] = _final(study)
            runners = {
                space: Trials(space, objective, again, causes_again, reporter, share).run_trial for space in finals
            }
            in_turns(finals, runners)

    def in_turns(some: Mapping[Space, Study], runners: Mapping[Space, TrialRunner]) -> None:
        waiting = dict(some)
        while waiting:  # so that a stopped study has given every method as much as any other
            for space, study in list(waiting.items()):
                if not study.work(runners[space]):
                    del waiting[space]
                    continue
                reporter.line(_said(study))
                _result(name, definition, studies, finals).write(folder)

    try:
        if helpers > 0:
            share = jobs or 1
            same = partial(
                tune, config, objective, trials, params, confirm=confirm, name=name, storage=storage, jobs=share
            )
            with helped(helpers, reporter, same):
                work(share)
        work(jobs)  # all of it, or what a helper that was ended has left
    finally:
        result = _result(name, definition, studies, finals)
        result.write(folder)
        write_page(result, [study.study for study in studies.values()], folder)
    return result


def _definition(config: RunConfig, objective: Objective, spaces: Sequence[Space]) -> dict[str, Any]:
    """What a study is: begun with one definition, it continues with no other."""
    searched = {str(space.spec): {name: str(search) for name, search in space.ranges.items()} for space in spaces}
    recipe = config.model_dump(mode="json", include=set(_RECIPE))
    if config.chat_template:  # studies of earlier versions do not name it
        recipe["chat_template"] = True
    levels = {name: list(objective.levels(config.levels or find_task(name).levels)) for name in config.tasks}
    return {
        "schema": SCHEMA,
        "objective": str(objective),
        "documents": "validation",
        "space": searched,
        "levels": levels,
        "recipe": recipe,
    }


def _causes(config: RunConfig, objective: Objective, spaces: Sequence[Space]) -> Causes:
    """What trials with a config's seeds are made from, those of the dense model included where it is needed."""
    if not config.seeds:
        return {}
    configs = [space.config_with({}, config) for space in spaces]
    if objective.needs_dense:
        configs.append(config.model_copy(update={"methods": ("dense",)}))
    return causes_of(plan(one, splits=("validation",)) for one in configs)


def _begin(folder: Path, definition: dict[str, Any]) -> None:
    """Write what the study is, or compare with what it was begun with."""
    file = folder / "study.json"
    if not file.is_file():
        return atomic.write_json(file, definition)
    try:
        begun_with = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise EnvironmentProblem(
            f"The study's definition {str(file)!r} must be what was written when it was begun, but {error}. Give "
            f"another --study; trainings that are on disk are not made again."
        ) from error
    changed = _changed(begun_with, definition)
    if changed:
        raise UsageError(
            f"A study goes on with what it was begun with, but of {folder.name!r} would change: "
            f"{', '.join(changed)}. See {str(file)!r}, or give another --study: it measures with what is there now."
        )


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys of two definitions that differ; of what trials are made from, what differs in it."""
    names: list[str] = []
    for key in sorted(key for key in {*before, *now} if before.get(key) != now.get(key)):
        one, other = before.get(key), now.get(key)
        if key in ("made_from", "confirmed_from") and isinstance(one, dict) and isinstance(other, dict):
            names += sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
        else:
            names.append(key)
    return list(dict.fromkeys(names))


def _open(storage: str | None, folder: Path) -> BaseStorage:
    if storage is None:
        return JournalStorage(Journal(folder / "journal.log"))
    try:
        return optuna.storages.get_storage(storage)
    except Exception as error:  # every driver has errors of its own
        raise EnvironmentProblem(
            f"The storage of the study cannot be opened ({type(error).__name__}). --storage takes an Optuna URL "
            f"such as sqlite:///study.db; without it the study is a file in {str(folder)!r}."
        ) from error


def _final(study: Study) -> Study:
    """The method as it is against the best trial of its finished study."""
    best = study.best
    assert best is not None
    name, folder = f"{study.study.study_name}/confirm-{best.number}", study.folder / f"confirm-{best.number}"
    return Study(name, study.storage, folder, study.space, 2, [best.params])


def _result(
    name: str, definition: dict[str, Any], studies: Mapping[Space, Study], finals: Mapping[Space, Study]
) -> StudyResult:
    trials, confirmed = (
        tuple(_trial(space, trial) for space, study in some.items() for trial in study.all)
        for some in (studies, finals)
    )
    exhausted = tuple(str(space.spec) for space, study in studies.items() if study.exhausted)
    return StudyResult(name, definition, trials, confirmed, exhausted)


def _trial(space: Space, trial: FrozenTrial) -> TrialResult:
    values = dict(trial.user_attrs.get("values", {}))
    value = trial.value if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) else None
    return TrialResult(
        method=str(space.spec),
        number=trial.number,
        state="refused" if "refused" in trial.user_attrs else trial.state.name.lower(),
        values=values,
        spec=str(space.spec_with(values)),
        rates=recipe_values(values),
        method_rate=float(values[METHOD_RATE]) if METHOD_RATE in values else None,
        value=value,
        curve=trial.user_attrs.get("curve", {}),
        reason=trial.user_attrs.get("reason", ""),
        interrupted=bool(trial.user_attrs.get("interrupted")),
        seconds=trial.user_attrs.get("seconds", {}),
    )


def _said(study: Study) -> str:
    """Where one method's study stands, after a trial."""
    begun_for_nothing = {"interrupted", "refused"}
    over = [trial for trial in study.all if trial.state.is_finished() and not begun_for_nothing & {*trial.user_attrs}]
    last = max(over, key=lambda trial: trial.datetime_complete or datetime.min)
    inner = ", ".join(f"{name}={value}" for name, value in last.user_attrs.get("values", {}).items()) or "its defaults"
    value = "" if last.value is None else f" {last.value:.4f}"
    reason = f" ({reason})" if (reason := last.user_attrs.get("reason")) else ""
    best = study.best
    so_far = "" if best is None else f"; best so far {best.value:.4f}"
    which = f"{study.space.spec}: trial {len(over)} of {study.trials} with {inner}"
    return f"{which}: {last.state.name.lower()}{value}{reason}{so_far}"
