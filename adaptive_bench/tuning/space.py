"""Defines what is tuned of one method: parameters of its spec and settings of the recipe, each with a range.

It also refuses values that are not a trial of their own: the model cannot have them, or they come to the same method as
an earlier trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

from optuna import Trial
from pydantic import ValidationError
from scipy.stats.qmc import Halton

from adaptive_bench import registry
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.method import SearchRange, config_of, method_class, training_spec
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.model_checks import examine, model_facts
from adaptive_bench.runs.run_plan import rate_of
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import canonical
from adaptive_bench.validation import rule_of

# Settings of the recipe that can be tuned: rates of the optimizer; and the steps, which a preset alone may vary.
METHOD_RATE, STEPS = "train.method_learning_rate", "train.steps"
RATES = ("train.learning_rate", METHOD_RATE, "train.weight_decay", "train.warmup_steps", "train.clip_norm")
_OF_RECIPE = (*RATES, STEPS)
_COVERING = 64  # points of the sequence that covers a space evenly
_DIGITS = 4  # digits of a drawn number, so that the text in a spec is exactly what was trained

Values = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Space:
    """The ranges searched for one method; parameters in `spec` are fixed in every trial."""

    spec: MethodSpec
    ranges: Mapping[str, SearchRange]

    @classmethod
    def of(cls, spec: MethodSpec, params: Iterable[str]) -> Space:
        """The space of a method: the one it publishes, or those of the given parameters (`parse_param`) that it has.

        Raises:
            UsageError: The method is never trained, or a range is of nothing that it accepts, or there is none.
        """
        method_type = method_class(spec)
        if not method_type.trains:
            raise UsageError(f"Tuning compares trainings, but {spec.name!r} is never trained. Leave it out.")
        given = [parse_param(text) for text in params]
        fixed = dict(spec.params)
        ranges = {name: search for owner, name, search in given if _concerns(owner, name, spec)}
        # Parameters that are given replace the published space; one that is fixed in the spec is no longer searched.
        if not given:
            ranges = {name: search for name, search in method_type.Config.search_space.items() if name not in fixed}
        if not ranges:
            raise UsageError(
                f"There is nothing to tune of {spec}: it publishes no search space beyond fixed parameters, and no "
                f"--param is for it. Its parameters are {', '.join(method_type.Config.model_fields) or 'none'}; rates "
                f"are {', '.join(RATES)}. Try --param {METHOD_RATE}=log:1e-4:1e-1."
            )
        for name, search in ranges.items():
            if name in fixed:
                raise UsageError(f"A parameter is either fixed or tuned, got {name!r} in {spec} and --param {name}.")
            for end in search.ends:  # what a config refuses at an end would fail many trials
                _check(spec, name, end)
        return cls(spec, dict(sorted(ranges.items())))

    def draw(self, trial: Trial) -> dict[str, str]:
        """Values that Optuna suggests, as a spec writes them."""
        return self.text({name: _drawn(trial, name, search) for name, search in self.ranges.items()})

    def text(self, point: Mapping[str, Any]) -> dict[str, str]:
        """The values of a point, as a spec writes them."""
        return {name: _text(self.ranges[name], value) for name, value in point.items()}

    def at(self, shares: Iterable[float]) -> dict[str, Any]:
        """A point of the space from one number in [0, 1) for each range."""
        return {name: _at(search, share) for (name, search), share in zip(self.ranges.items(), shares, strict=True)}

    def grid(self) -> Iterator[dict[str, Any]]:
        """All points of a space that has only choices and whole numbers; none of any other space."""
        if all(search.scale in ("choice", "int") for search in self.ranges.values()):
            several = [
                search.choices if search.scale == "choice" else range(int(search.low), int(search.high) + 1)
                for search in self.ranges.values()
            ]
            yield from (dict(zip(self.ranges, point, strict=True)) for point in product(*several))

    def accepted(self, config: RunConfig, tried: Mapping[int, Values]) -> Iterator[dict[str, Any]]:
        """Points that differ from all trials before them: first points that cover the space evenly, then its `grid`."""
        known = dict(tried)
        # Without its first point, the corner 0.
        covering = map(self.at, Halton(len(self.ranges), scramble=False).random(_COVERING + 1)[1:])
        for point in chain(covering, self.grid()):
            values = self.text(point)
            if self.refusal(values, known, config) is None:
                known[-len(known) - 1] = values  # a negative number is no trial's
                yield point

    def refusal(self, values: Values, tried: Mapping[int, Values], config: RunConfig) -> str | None:
        """Why values are not a trial of their own on a run's model, given earlier trials by number; `None` if
        they are.
        """
        try:
            mine = self._canonical_trial(values, config)
        except UsageError as error:  # values that exclude each other
            return str(error)
        for number, other in tried.items():
            if self._canonical_trial(other, config) == mine:
                return f"comes to the same method as trial {number}" + ("" if other else ", its defaults")
        return self._fault(values, config)

    def _fault(self, values: Values, config: RunConfig) -> str | None:
        try:
            examine(self.spec_with(values), model_facts(config.model))
            return None
        except UsageError as error:
            return str(error)

    def _canonical_trial(self, values: Values, config: RunConfig) -> str:
        """What values amount to: the method on this model and its recipe, as text that is equal for equal trials."""
        config = self.config_with(values, config)
        spec = MethodSpec.parse(config.methods[0])
        rate = rate_of(training_spec(spec), config.train.method_learning_rates)  # what its training uses
        layers = int(model_facts(config.model).empty.config.num_hidden_layers)
        recipe = config.train.model_dump(mode="json", exclude={"method_learning_rates"})
        return canonical([config_of(spec).on_model(layers), rate, recipe])

    def fitted(self, config: RunConfig) -> Space:
        """The space with each whole-number range cut to the largest value that the model can have. A plugin's method
        keeps its space, because each try would run the plugin's code.
        """
        if registry.is_foreign("methods", self.spec.name):
            return self
        ranges = dict(self.ranges)
        for name, search in self.ranges.items():
            if search.scale == "int":
                downwards = range(int(search.high), int(search.low) - 1, -1)
                largest = next((value for value in downwards if self._fault({name: str(value)}, config) is None), None)
                ranges[name] = search if largest is None else replace(search, high=float(largest))
        return Space(self.spec, ranges)

    def spec_with(self, values: Values) -> MethodSpec:
        """The method's spec with the values that belong to it."""
        own = {name: value for name, value in values.items() if name not in _OF_RECIPE}
        return MethodSpec(self.spec.name, tuple({**dict(self.spec.params), **own}.items()), self.spec.semantics)

    def config_with(self, values: Values, config: RunConfig) -> RunConfig:
        """The config of one trial's run; a `UsageError` if a recipe cannot have the values."""
        spec = self.spec_with(values)
        rates = dict(config.train.method_learning_rates)
        known = rate_of(training_spec(self.spec), rates)
        rate = float(values[METHOD_RATE]) if METHOD_RATE in values else known
        if rate is not None:
            # The values make another spec, for which a rate given for the method's own spec would not count.
            rates[str(training_spec(spec))] = rate
        train = config.train.model_dump() | recipe_values(values) | {"method_learning_rates": rates}
        try:
            recipe = TrainRecipe.model_validate(train)
        except ValidationError as error:
            raise UsageError(f"the recipe cannot have it: {rule_of(error.errors()[0])}") from error
        return config.model_copy(update={"methods": (str(spec),), "train": recipe})


def parse_param(text: str) -> tuple[str | None, str, SearchRange]:
    """Read `sparsity_weight=log:1e-3:1`, `gateskip.sparsity_weight=...` or `train.learning_rate=...`.

    Returns:
        The method that the parameter belongs to (`None` for every method that has it), its name, and its range.
    """
    name, equals, search = (part.strip() for part in text.partition("="))
    if not (name and equals and search):
        raise UsageError(f"--param has the form NAME=RANGE, for example sparsity_weight=log:1e-3:1, got {text!r}.")
    owner, dot, rest = name.rpartition(".")
    if owner == "train":
        if name not in _OF_RECIPE:
            raise UsageError(f"Rates of the recipe are {', '.join(RATES)}, got {name!r}.")
        return None, name, SearchRange.parse(search)
    return (owner if dot else None), rest, SearchRange.parse(search)


def check_owned(specs: Iterable[MethodSpec], params: Iterable[str]) -> None:
    """Refuse (`UsageError`) parameters that none of the methods has."""
    specs = list(specs)
    for text in params:
        owner, name, _ = parse_param(text)
        if not any(_concerns(owner, name, spec) for spec in specs):
            fields = sorted({field for spec in specs for field in method_class(spec).Config.model_fields} | set(RATES))
            raise UsageError(
                f"No method of the study has the parameter {name!r}, got --param {text}. "
                f"{registry.did_you_mean(name, fields)}"
            )


def recipe_values(values: Values) -> dict[str, float]:
    """The values that belong to the recipe of the whole run, as numbers."""
    return {
        name.removeprefix("train."): float(value)
        for name, value in values.items()
        if name in _OF_RECIPE and name != METHOD_RATE
    }


def _concerns(owner: str | None, name: str, spec: MethodSpec) -> bool:
    return owner in (None, spec.name) and (name in _OF_RECIPE or name in method_class(spec).Config.model_fields)


def _check(spec: MethodSpec, name: str, value: str) -> None:
    if name not in _OF_RECIPE:
        config_of(MethodSpec(spec.name, (*spec.params, (name, value)), spec.semantics))
        return
    rates = (
        {"method_learning_rates": {str(spec): float(value)}} if name == METHOD_RATE else recipe_values({name: value})
    )
    try:
        TrainRecipe.model_validate(rates)
    except ValidationError as error:
        raise UsageError(f"{name} cannot be {value}: {rule_of(error.errors()[0])}. Change the range.") from error


def _at(search: SearchRange, share: float) -> Any:
    if search.scale == "choice":
        # `share` is below 1, so the last choice and number are as likely as the others.
        return search.choices[int(share * len(search.choices))]
    if search.scale == "int":
        return int(search.low) + int(share * (search.high - search.low + 1))
    if search.scale == "log":
        return search.low * (search.high / search.low) ** share
    return search.low + share * (search.high - search.low)


def _drawn(trial: Trial, name: str, search: SearchRange) -> Any:
    if search.scale == "choice":
        return trial.suggest_categorical(name, search.choices)
    if search.scale == "int":
        return trial.suggest_int(name, int(search.low), int(search.high))
    return trial.suggest_float(name, search.low, search.high, log=search.scale == "log")


def _text(search: SearchRange, drawn: Any) -> str:
    if search.scale in ("choice", "int"):
        return str(drawn)
    # Rounding may leave the range by a digit, and `:g` writes the number as a spec does.
    return f"{min(max(float(f'{drawn:.{_DIGITS}g}'), search.low), search.high):g}"
