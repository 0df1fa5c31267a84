"""Stores the result of a study in `result.json`, with every trial, and applies its best specs to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic

SCHEMA = 1
TRAINING, EVALUATION = "training", "evaluation"


@dataclass(frozen=True)
class TrialResult:
    """One trial of a study.

    Attributes:
        seconds: Seconds of `training` and `evaluation`, from the records; empty if nothing was measured.
    """

    method: str  # the method that was tuned, without the values
    number: int  # the trial's number in the Optuna study
    state: str  # `complete`, `fail`, or `refused` for values that are not a trial of their own and do not count
    values: dict[str, str]  # values that were tried; empty for the method's defaults
    spec: str  # the method with those of the values that belong to its spec
    rates: dict[str, float]  # the values that belong to the recipe of a run, by name
    method_rate: float | None  # rate of the parameters that the method adds, if it was tuned
    value: float | None
    reason: str = ""  # why the trial failed or was refused
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def values_text(self) -> str:
        """The values that were tried, for a table."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items()) or "(its defaults)"

    @property
    def seconds_text(self) -> str:
        """Seconds of training and evaluation, for a table."""
        return " + ".join(f"{self.seconds[name]:.0f}" for name in (TRAINING, EVALUATION) if name in self.seconds)


@dataclass(frozen=True)
class StudyResult:
    """All trials of a study."""

    name: str
    definition: dict[str, Any]  # what the study searches, by which objective, and with which recipe
    trials: tuple[TrialResult, ...]  # method by method, in the order in which they ended
    # For each method whose best trial was trained again with other seeds, that trial and the defaults.
    confirmed: tuple[TrialResult, ...] = ()
    notes: tuple[str, ...] = ()  # methods with fewer trials than asked for, and the lines of the study's preset

    @property
    def best(self) -> dict[str, TrialResult]:
        """For each method, the complete trial with the highest value; the first one of a tie.

        If the best trial and the defaults were both confirmed, only these two count, with their confirmed values.
        """
        complete = [trial for trial in self._that_count if trial.state == "complete" and trial.value is not None]
        of_methods = {trial.method: [one for one in complete if one.method == trial.method] for trial in complete}
        return {method: max(some, key=lambda one: one.value or 0.0) for method, some in of_methods.items()}

    @property
    def _that_count(self) -> tuple[TrialResult, ...]:
        complete = [trial.method for trial in self.confirmed if trial.state == "complete"]
        # The best trial and the defaults: one of them alone, if the other failed, decides nothing.
        settled = {method for method in complete if complete.count(method) == 2}
        searched = [trial for trial in self.trials if trial.method not in settled]
        return (*searched, *(trial for trial in self.confirmed if trial.method in settled))

    def default(self, method: str) -> TrialResult | None:
        """The trial of a method with its defaults."""
        return next((trial for trial in self._that_count if trial.method == method and not trial.values), None)

    def write(self, folder: Path) -> None:
        """Write `result.json`."""
        # `schema` and `best` are for people and other programs; `read` finds the best from the trials.
        best = {method: trial.spec for method, trial in self.best.items()}
        atomic.write_json(folder / "result.json", {"schema": SCHEMA, "best": best, **asdict(self)})

    @classmethod
    def read(cls, file: Path) -> StudyResult:
        """Read `result.json`; an `EnvironmentProblem` if it cannot be read or is not what a study wrote."""
        try:
            return TypeAdapter(cls).validate_json(file.read_bytes())
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(
                f"The study's result {str(file)!r} cannot be read ({message_of(error)}). Give the `adaptive-bench "
                f"tune` command again: it writes the file anew."
            ) from error


def studies_folder(out: Path) -> Path:
    """The folder that holds the studies of an output folder."""
    return out / "studies"


def find_result(name: str, out: Path) -> StudyResult:
    """The result of the study with this name; a `UsageError` if there is none."""
    file = studies_folder(out) / name / "result.json"
    if not file.is_file():
        names = sorted(file.parent.name for file in studies_folder(out).glob("*/result.json"))
        raise UsageError(
            f"No study in {str(out)!r} is called {name!r}. "
            + (f"There are {', '.join(names)}." if names else "Begin one with `adaptive-bench tune`.")
        )
    return StudyResult.read(file)


def tuned(config: RunConfig, study: StudyResult) -> RunConfig:
    """The config of a run with the study's best spec in place of each method that was tuned; a `UsageError` if none
    was, or if two methods need different values of a rate that all share.
    """
    best = study.best
    chosen = {text: best[text] for text in config.methods if text in best}
    if not chosen:
        raise UsageError(
            f"The study {study.name!r} has finished trials of {', '.join(best) or 'no method'}, but the run compares "
            f"{', '.join(config.methods)}. Give the tuned ones in --methods."
        )
    rates = _common_rates(list(chosen.values()))
    # Once, if two methods of the run have the same best spec.
    methods = tuple(dict.fromkeys(chosen[text].spec if text in chosen else text for text in config.methods))
    own = {trial.spec: trial.method_rate for trial in chosen.values() if trial.method_rate is not None}
    given = config.train.method_learning_rates
    # A rate that was given for a spec is given for its tuned form too; one for a method's name fits all its specs.
    kept = {trial.spec: given[text] for text, trial in chosen.items() if text in given and {"[", "@"} & set(text)}
    train = {**config.train.model_dump(), **rates, "method_learning_rates": {**given, **kept, **own}}
    return RunConfig.model_validate({**config.model_dump(), "methods": methods, "train": train})


def _common_rates(trials: Sequence[TrialResult]) -> Mapping[str, float]:
    rates: dict[str, float] = {}
    for trial in trials:
        for name, value in trial.rates.items():
            if rates.setdefault(name, value) != value:
                raise UsageError(
                    f"All methods of a run share train.{name}, but the best trials want {rates[name]:g} and {value:g}. "
                    f"Run the methods one by one, or instead of {name!r} tune the rate of the parameters they add: "
                    f"train.method_learning_rate."
                )
    return rates
