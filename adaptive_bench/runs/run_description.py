"""Describes a run in a few lines before it starts: the model, the recipe, and what the run will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from adaptive_bench.config import RunConfig
from adaptive_bench.model.hub_models import is_hub_id
from adaptive_bench.progress import duration
from adaptive_bench.runs.budget import Budget, Workload, budget, count_work, empty_model
from adaptive_bench.runs.estimate import steps_left, total
from adaptive_bench.runs.model_checks import size
from adaptive_bench.runs.precision import chosen
from adaptive_bench.runs.run_checks import Preflight, disk_bytes
from adaptive_bench.runs.shapes import SHAPES
from adaptive_bench.runs.training_targets import levels_of


def about(config: RunConfig, found: Preflight | None, flops_per_s: float | None = None) -> list[str]:
    """Lines that begin with a label.

    Args:
        found: What is known before the run; `None` if the run cannot be done here. For a model of the hub the lines
            then rest on the sizes stored for its name, as if nothing were on disk; for any other model there are none.
        flops_per_s: FLOPs a second that a device sustains, to state the hours the run takes.
    """
    if found is None:
        return _about_unreachable(config, flops_per_s) if is_hub_id(config.model) else []
    lines = [] if found.facts is None else [f"model   {found.facts}"]
    auto = config.train.precision == "auto"
    lines.append(f"recipe  {_recipe(config, str(chosen(config) if auto else config.train.precision))}")
    lines.append(_levels(config, {level for sweep in found.plan.sweeps for level in sweep.levels}))
    if found.plan.sites is not None:
        lines.append(f"eligible: {found.plan.sites.described()}")
    elif found.plan.sites_left:
        lines.append("eligible: measured when the run begins, with one pass for each site (about a minute at 135 M)")
    if found.work is None or found.estimator is None:
        return [*lines, "left    nothing: everything is on disk"]
    dial_values: Counter[str] = Counter()
    for sweep in found.plan.sweeps:
        dial_values[sweep.task] += found.estimator.points_left(sweep)
    steps = [(training.spec, steps_left(training)) for training in found.plan.untrained]
    lines.append(f"disk    up to {size(found.disk_bytes, 'G')}B in {config.out}")
    lines += _costs(budget(found.work, steps, dial_values), flops_per_s)
    estimate = total(found.plan, found.estimator)
    how = f"{found.jobs} processes" if found.jobs > 1 else "one process"
    rough = ", roughly: no record and no measurement of this model" if estimate.rough else ""
    lines.append(f"time    about {duration(estimate.seconds / found.jobs)} in {how}{rough}")
    return lines


def _about_unreachable(config: RunConfig, flops_per_s: float | None) -> list[str]:
    empty = empty_model(config.model)
    if empty is None:
        return [f"FLOPs   not known: {config.model} cannot be loaded, and sizes are stored for {', '.join(SHAPES)}"]
    parameters = sum(parameter.numel() for parameter in empty.parameters())
    steps, dial_values = count_work(config, empty)
    return [
        f"model   {config.model} ({empty.config.model_type}, {size(parameters)} parameters, by its name)",
        f"recipe  {_recipe(config, config.train.precision)}",
        _levels(config, levels_of(config, int(empty.config.num_hidden_layers))),
        f"disk    up to {size(disk_bytes(config.train, empty, [each > 0 for _, each in steps]), 'G')}B in {config.out}",
        *_costs(budget(Workload(config, empty, None), steps, dial_values), flops_per_s),
    ]


def _costs(taken: Budget, flops_per_s: float | None) -> list[str]:
    most = "up to " if taken.bounded else "about "
    lines = [
        f"FLOPs   training {most}{taken.training_flops:.1e}: {taken.trainings} trainings, {taken.steps:,} steps, "
        f"{most}{size(taken.tokens)} tokens",
    ]
    evaluated = f"{taken.dial_values:,} dial values, priced as dense"
    if taken.evaluation_flops or not taken.unknown:
        lines.append(f"        evaluation about {taken.evaluation_flops:.1e}: {evaluated}")
    if taken.unknown:
        names, reason = ", ".join(taken.unknown), next(iter(taken.unknown.values()))
        lines.append(f"        evaluation of {names} not known: {reason}")
    if flops_per_s is None:
        return [*lines, "hours   say what a device sustains, for example --flops 4e14"]
    training, evaluation = taken.hours(flops_per_s)
    parts = f"training {most}{training:.3g}, evaluation about {evaluation:.3g}"
    without = f" without {', '.join(taken.unknown)}" if taken.unknown else ""
    return [*lines, f"hours   {training + evaluation:.3g} of a device at {flops_per_s:.3g} FLOP/s: {parts}{without}"]


def _levels(config: RunConfig, levels: Iterable[float]) -> str:
    known, target = ", ".join(f"{100 * level:.3g} %" for level in sorted(levels)), config.train.target
    trained = "each trained for" if target is None else f"trained for {100 * target:.3g} %"
    return f"levels  {known} saved ({config.match_on}), {trained if config.train.steps else 'as it is'}"


def _recipe(config: RunConfig, precision: str) -> str:
    train = config.train
    name = config.preset or "of the config"
    if not train.steps:
        return f"{name}: nothing is trained"
    own = "".join(f", {method} {rate:g}" for method, rate in train.method_learning_rates.items())
    return (
        f"{name}: {train.steps} steps of {train.batch_size} sequences, rate {train.learning_rate:g}{own}, "
        f"length {train.max_length}, {precision}{f', LoRA of rank {train.lora.rank}' if train.lora else ''}"
    )
