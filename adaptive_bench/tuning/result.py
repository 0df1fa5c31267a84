"""What a study leaves behind: `result.json` with every trial, and from it the best specs for a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.store import atomic

SCHEMA = 1
TRAINING, EVALUATION = "training", "evaluation"


@dataclass(frozen=True)
class TrialResult:
    """One trial of a study.

    Attributes:
        method: What was tuned, without the values.
        number: Its number in the Optuna study.
        state: `complete`, `pruned`, `fail`, or `refused` where it was none of its own and does not count.
        values: What was tried; nothing for the method as it is.
        spec: The method with the values that are its own.
        rates: The values that belong into the recipe of a run, by name.
        method_rate: Rate of the parameters the method adds, where it was tuned.
        value: The objective; of a pruned trial over what was measured.
        curve: By task, the mean score at each level of the run.
        reason: Why it failed or was stopped.
        seconds: Of `training` and of `evaluation`, from the records; empty where nothing was measured.
    """

    method: str
    number: int
    state: str
    values: dict[str, str]
    spec: str
    rates: dict[str, float]
    method_rate: float | None
    value: float | None
    curve: dict[str, list[float | None]] = field(default_factory=dict)
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def values_text(self) -> str:
        """What was tried, for a table."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items()) or "(its defaults)"

    @property
    def seconds_text(self) -> str:
        """Training and evaluation, for a table."""
        return " + ".join(f"{self.seconds[name]:.0f}" for name in (TRAINING, EVALUATION) if name in self.seconds)


@dataclass(frozen=True)
class StudyResult:
    """All trials of a study.

    Attributes:
        name: Of the study.
        definition: What it searches, for what, and with which recipe.
        trials: By method, in the order they were begun.
        confirmed: Of methods whose best was trained again beside the defaults, those two.
        notes: Methods with fewer trials than asked for, and what the preset of the study says about it.
    """

    name: str
    definition: dict[str, Any]
    trials: tuple[TrialResult, ...]
    confirmed: tuple[TrialResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> dict[str, TrialResult]:
        """By method, the complete trial with the highest value, of those that confirm it where there are; of equal ones
        the first.
        """
        complete = [trial for trial in self._that_count if trial.state == "complete" and trial.value is not None]
        of_methods = {trial.method: [one for one in complete if one.method == trial.method] for trial in complete}
        return {method: max(some, key=lambda one: one.value or 0.0) for method, some in of_methods.items()}

    @property
    def _that_count(self) -> tuple[TrialResult, ...]:
        complete = [trial.method for trial in self.confirmed if trial.state == "complete"]
        settled = {method for method in complete if complete.count(method) == 2}
        searched = [trial for trial in self.trials if trial.method not in settled]
        return (*searched, *(trial for trial in self.confirmed if trial.method in settled))

    def default(self, method: str) -> TrialResult | None:
        """The trial of a method as it is."""
        return next((trial for trial in self._that_count if trial.method == method and not trial.values), None)

    def write(self, folder: Path) -> None:
        """Write `result.json`."""
        plain = {"schema": SCHEMA, "name": self.name, "definition": self.definition}
        best = {method: trial.spec for method, trial in self.best.items()}
        trials = {name: [asdict(trial) for trial in getattr(self, name)] for name in ("trials", "confirmed")}
        more = {"notes": list(self.notes)} if self.notes else {}
        atomic.write_json(folder / "result.json", {**plain, "best": best, **trials, **more})

    @classmethod
    def read(cls, file: Path) -> StudyResult:
        """Read it back.

        Raises:
            EnvironmentProblem: It cannot be read, or is not what the study wrote.
        """
        try:
            values = json.loads(file.read_bytes())
            read = TypeAdapter(tuple[TrialResult, ...]).validate_python
            trials, confirmed = read(values["trials"]), read(values.get("confirmed", ()))
            return cls(values["name"], values["definition"], trials, confirmed, tuple(values.get("notes", ())))
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise EnvironmentProblem(
                f"The study's result {str(file)!r} cannot be read ({message_of(error)}). Give the `adaptive-bench "
                f"tune` command again: it writes the file anew."
            ) from error


def studies_folder(out: Path) -> Path:
    """Where the studies of an output folder are."""
    return out / "studies"


def find_result(name: str, out: Path) -> StudyResult:
    """The result of a study by its name.

    Raises:
        UsageError: There is no such study.
    """
    file = studies_folder(out) / name / "result.json"
    if not file.is_file():
        names = sorted(file.parent.name for file in studies_folder(out).glob("*/result.json"))
        raise UsageError(
            f"No study in {str(out)!r} is called {name!r}. "
            + (f"There are {', '.join(names)}." if names else "Begin one with `adaptive-bench tune`.")
        )
    return StudyResult.read(file)


def tuned(config: RunConfig, study: StudyResult) -> RunConfig:
    """A run with the best of the study in place of each method that was tuned.

    Raises:
        UsageError: None of the run's methods was tuned, or two methods want different rates of the whole run.
    """
    best = study.best
    chosen = {text: best[text] for text in config.methods if text in best}
    if not chosen:
        raise UsageError(
            f"The study {study.name!r} has finished trials of {', '.join(best) or 'no method'}, the run is about "
            f"{', '.join(config.methods)}. Give the tuned ones in --methods."
        )
    rates = _common_rates(list(chosen.values()))
    methods = tuple(dict.fromkeys(chosen[text].spec if text in chosen else text for text in config.methods))
    own = {trial.spec: trial.method_rate for trial in chosen.values() if trial.method_rate is not None}
    of_config = config.train.method_learning_rates
    kept = {trial.spec: of_config[text] for text, trial in chosen.items() if text in of_config and "[" in text}
    train = {**config.train.model_dump(), **rates, "method_learning_rates": {**of_config, **kept, **own}}
    return RunConfig.model_validate({**config.model_dump(), "methods": methods, "train": train})


def _common_rates(trials: Sequence[TrialResult]) -> Mapping[str, float]:
    rates: dict[str, float] = {}
    for trial in trials:
        for name, value in trial.rates.items():
            if rates.setdefault(name, value) != value:
                raise UsageError(
                    f"All methods of a run share train.{name}, but the best trials want {rates[name]:g} and {value:g}. "
                    f"Run the methods one by one, or tune {name!r} of the parameters they add: "
                    f"train.method_learning_rate."
                )
    return rates
