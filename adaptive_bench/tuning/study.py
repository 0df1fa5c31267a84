"""One method's study in an Optuna storage: which trial comes next, and what becomes of it, whoever is killed.

Any number of workers share a study. A trial is held by a lock of its worker; the lock of a dead worker is free, and
its trial is closed as interrupted and begun again with the same values. A trial's values depend on the finished trials
before it and on its place in the study, so an interrupted study of one worker draws what an undisturbed one draws.

Values that are refused (`refusals`) are closed as such and count for nothing. The next trial has the first point of the
space that is not refused; where there is none, or several in a row turn out to do what was tried, the space is
exhausted and the study over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import optuna
from filelock import FileLock, Timeout
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic
from adaptive_bench.tuning.refusals import Why, accepted, repeated, spread
from adaptive_bench.tuning.space import Space, Values

SPREAD = 4  # trials that cover the space evenly, after the one with the method's defaults
_WAIT_S = 0.2
_DRAWN, _MEASURED = "drawn", "measured"  # when values were refused
_IN_A_ROW = 5  # refused trials after which no other one is drawn: each may have been trained
_PRUNE_AFTER = 4  # complete trials that a median is taken of
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Intermediate(NamedTuple):
    """The objective over what is measured so far; the last one of a trial is its result.

    Attributes:
        curve: By task, the score at each level; kept with the trial.
        seconds: What was measured so far took, by what it was; kept with the trial.
        behaviour: Digest of what the trained models do, of the last one; trials with equal ones were the same method.
    """

    value: float
    last: bool
    curve: dict[str, list[float | None]]
    seconds: Mapping[str, float] = MappingProxyType({})
    behaviour: str = ""


TrialRunner = Callable[[Values], Iterator[Intermediate]]


class TrialFailed(Exception):
    """A trial has no result; the message says why."""


class _WorseThanMedian(BasePruner):
    """Stops a trial that lies below the median of the complete ones at the same step."""

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """See `BasePruner`."""
        step = trial.last_step
        if step is None:
            return False
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        others = [other.intermediate_values[step] for other in complete if step in other.intermediate_values]
        return len(others) >= _PRUNE_AFTER and trial.intermediate_values[step] < median(others)


class Study:
    """The trials of one method.

    Args:
        name: Of the Optuna study.
        folder: Where workers lock trials; the same one for all of them.
        space: What is searched.
        trials: How many are tried, the one with the method's defaults included.
        points: What is tried after the defaults and before the sampler is asked; by default what covers the space.
        why: Says why values are refused.
    """

    def __init__(
        self,
        name: str,
        storage: BaseStorage,
        folder: Path,
        space: Space,
        trials: int,
        points: Sequence[Mapping[str, Any]] | None = None,
        why: Why = repeated,
    ) -> None:
        self.storage, self.space, self.trials, self.folder, self._why = storage, space, trials, folder, why
        self._points = spread(space, why, SPREAD) if points is None else points
        with atomic.writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with self._exclusive():
            self.study = optuna.create_study(
                study_name=name, storage=storage, direction="maximize", load_if_exists=True, pruner=_WorseThanMedian()
            )

    def check_definition(self, key: str) -> None:
        """Note in the storage which definition the trials are of; refuse trials of another one.

        Raises:
            UsageError: There are such trials: a storage may outlive the folder of its study, or serve several.
        """
        with self._exclusive():
            known = self.study.user_attrs.get("definition")
            if known is None and not self.all:
                self.study.set_user_attr("definition", key)
            elif known != key:
                raise UsageError(
                    f"Trials of a study have one definition, but the storage has trials of {self.study.study_name!r} "
                    f"that were made with another one than this command's. Give another --study."
                )

    @property
    def all(self) -> list[FrozenTrial]:
        """Every trial in the order they were asked for."""
        return self.study.get_trials(deepcopy=False)

    @property
    def best(self) -> FrozenTrial | None:
        """The complete trial with the highest value, of equal ones the first."""
        complete = [trial for trial in self.all if trial.state is TrialState.COMPLETE]
        return max(complete, key=lambda trial: trial.value or 0.0, default=None)

    def left(self) -> int:
        """Trials that nobody has begun."""
        return max(0, self.trials - sum(map(_counts, self.all)))

    @property
    def exhausted(self) -> bool:
        """Whether trials are left and there is nothing more to try."""
        return bool(self.left()) and self._lacks_point and (self._gave_up or self._substitute() is None)

    def finish(self, run_trial: TrialRunner) -> None:
        """Do every trial that is left, and wait for those that other workers have begun."""
        while self.work(run_trial) or any(trial.state is TrialState.RUNNING for trial in self.all):
            time.sleep(_WAIT_S)

    def work(self, run_trial: TrialRunner) -> bool:
        """Do one trial; `False` if there is none left to begin.

        An error of `run_trial` fails the trial, unless it is one the user can act on or a stop: then the trial is put
        back to be done again, and the error goes on.

        Raises:
            EnvironmentProblem: The storage cannot be read or written.
        """
        try:
            return self._work(run_trial)
        except StorageInternalError as error:  # the trial stays as it was; whoever works on finds its lock free
            reason = message_of(error.__cause__ or error)
            raise EnvironmentProblem(
                f"The storage of a study must be readable and writable, but: {reason}. Finished trials are kept; "
                "correct that and give the same command again."
            ) from error

    def _work(self, run_trial: TrialRunner) -> bool:
        while (claimed := self._claim()) is not None:
            if self._do(*claimed, run_trial):
                return True
        return False

    def _do(self, trial: optuna.Trial, lock: FileLock, run_trial: TrialRunner) -> bool:
        """Do a trial that is held; `False` if it was refused."""
        try:
            return self._carry_out(trial, run_trial)
        except TrialFailed as error:
            self._fail(trial, str(error))
        except StorageInternalError:
            raise
        except AdaptiveBenchError as error:
            self._interrupt(trial.number, error)
            raise
        except Exception as error:  # noqa: BLE001 - one broken trial must not cost the others
            self._fail(trial, f"{type(error).__name__}: {message_of(error)}")
        except BaseException as error:
            self._interrupt(trial.number, error)
            raise
        finally:
            lock.release()
            Path(lock.lock_file).unlink(missing_ok=True)
        return True

    def _claim(self) -> tuple[optuna.Trial, FileLock] | None:
        with self._exclusive():
            for stale in self.all:
                if stale.state is TrialState.RUNNING and not self._is_held(stale.number):
                    self._put_back(stale.number, "interrupted: its process ended")
            self._tidy()
            if not self.left():
                return None
            if not any(trial.state is TrialState.WAITING for trial in self.all) and not self._enqueue_next():
                return None
            trial = self.study.ask()
            lock = self._lock(trial.number)
            lock.acquire(timeout=0)
            return trial, lock

    def _tidy(self) -> None:
        """Remove the locks of trials that are over, which a killed worker could not."""
        over = {f"trial-{trial.number}.lock" for trial in self.all if trial.state.is_finished()}
        for file in self.folder.glob("trial-*.lock"):
            if file.name in over:
                file.unlink(missing_ok=True)

    def _enqueue_next(self) -> bool:
        """The method as it is, then the given points, then whatever the sampler will say, or a point for one that was
        refused; `False` if there is none.
        """
        place = sum("again" not in trial.user_attrs for trial in self.all)
        about: dict[str, Any] = {"place": place}
        point: Mapping[str, Any] | None = {}
        if 1 <= place <= len(self._points):
            point = self._points[place - 1]
        elif self._lacks_point:
            point, about["substitute"] = None if self._gave_up else self._substitute(), True
        if point is None:
            return False
        self.study.enqueue_trial(dict(point), user_attrs=about | {"point": dict(point)})
        return True

    @property
    def _lacks_point(self) -> bool:
        """Whether a refused trial has no other one in its place."""
        new = [trial.user_attrs for trial in self.all if "again" not in trial.user_attrs]
        return sum("refused" in about for about in new) > sum("substitute" in about for about in new)

    @property
    def _gave_up(self) -> bool:
        last = [trial for trial in self.all if trial.state.is_finished()][-_IN_A_ROW:]
        return len(last) == _IN_A_ROW and all("refused" in trial.user_attrs for trial in last)

    def _substitute(self) -> dict[str, Any] | None:
        return next(accepted(self.space, self._why, self._tried()), None)

    def _tried(self) -> dict[int, Values]:
        """By number, values of all trials that count, and of those that were measured before they were refused."""
        known = (one for one in self.all if _counts(one) or one.user_attrs.get("refused") == _MEASURED)
        return {trial.number: trial.user_attrs["values"] for trial in known if "values" in trial.user_attrs}

    def _carry_out(self, trial: optuna.Trial, run_trial: TrialRunner) -> bool:
        """Do a trial; `False` if its values are refused, or did what those of another trial did."""
        with self._exclusive():  # no other worker draws the same meanwhile
            values = self._values(trial)
            if values and (reason := self._why(values, self._tried())) is not None:
                self._refuse(trial, values, reason, _DRAWN)
                return False
            trial.set_user_attr("values", values)
        result = None
        for step, result in enumerate(run_trial(values)):
            trial.report(result.value, step)
            trial.set_user_attr("curve", result.curve)
            trial.set_user_attr("seconds", dict(result.seconds))
            if not result.last and trial.should_prune():
                trial.set_user_attr("reason", f"pruned: below the median at step {step + 1}")
                self.study.tell(trial, state=TrialState.PRUNED)
                return True
        assert result is not None
        if result.behaviour and (twin := self._twin(result.behaviour)) is not None:
            reason = f"did exactly what trial {twin} did: what tells them apart changes nothing"
            self._refuse(trial, values, reason, _MEASURED)
            return False
        trial.set_user_attr("behaviour", result.behaviour)
        self.study.tell(trial, result.value)
        return True

    def _twin(self, behaviour: str) -> int | None:
        same = (trial.number for trial in self.all if trial.user_attrs.get("behaviour") == behaviour)
        return next(same, None)

    def _refuse(self, trial: optuna.Trial, values: Values, reason: str, when: str) -> None:
        trial.set_user_attr("values", dict(values))
        trial.set_user_attr("refused", when)
        self._fail(trial, reason)

    def _values(self, trial: optuna.Trial) -> dict[str, str]:
        place = trial.user_attrs["place"]
        if place == 0:
            return {}
        seed = int.from_bytes(hashlib.sha256(f"{self.study.study_name} {place}".encode()).digest()[:4], "big")
        self.study.sampler = TPESampler(n_startup_trials=SPREAD, seed=seed)
        return self.space.draw(trial)

    def _fail(self, trial: optuna.Trial, reason: str) -> None:
        trial.set_user_attr("reason", reason)
        self.study.tell(trial, state=TrialState.FAIL)

    def _interrupt(self, number: int, error: BaseException) -> None:
        with self._exclusive():
            self._put_back(number, f"interrupted: {type(error).__name__}")

    def _put_back(self, number: int, reason: str) -> None:
        """Close a trial and have the same one begun again, once."""
        (trial,) = (trial for trial in self.all if trial.number == number)
        if not any(other.user_attrs.get("again") == number for other in self.all):
            point = trial.user_attrs.get("point", {})  # what was given and may not have been drawn yet
            same = {"place": trial.user_attrs["place"], "point": point, "again": number}
            self.study.enqueue_trial({**point, **trial.params}, user_attrs=same)
        study = self.storage.get_study_id_from_name(self.study.study_name)
        trial_id = self.storage.get_trial_id_from_study_id_trial_number(study, number)
        for key, value in {"reason": reason, "interrupted": True}.items():
            self.storage.set_trial_user_attr(trial_id, key, value)
        self.study.tell(number, state=TrialState.FAIL)

    def _is_held(self, number: int) -> bool:
        lock = self._lock(number)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def _lock(self, number: int) -> FileLock:
        return FileLock(self.folder / f"trial-{number}.lock")

    def _exclusive(self) -> FileLock:
        return FileLock(self.folder / "study.lock")


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial uses up one of the study's: it is running or over, not refused and not begun again."""
    if "refused" in trial.user_attrs or "interrupted" in trial.user_attrs:
        return False
    return trial.state is TrialState.RUNNING or trial.state in _FINISHED
