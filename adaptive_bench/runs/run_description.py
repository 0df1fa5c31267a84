"""Describes a run before it starts: the model, the recipe, its work, and what that will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from adaptive_bench.config import RunConfig
from adaptive_bench.progress import duration
from adaptive_bench.runs.forecast import Estimator, steps_left
from adaptive_bench.runs.measured_settings import chosen
from adaptive_bench.runs.model_checks import size
from adaptive_bench.runs.run_checks import Preflight
from adaptive_bench.runs.run_plan import Plan
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun


def about(config: RunConfig, found: Preflight, flops_per_s: float | None = None) -> list[str]:
    """Lines that begin with a label.

    Args:
        flops_per_s: FLOPs a second that a device sustains, to state the hours the run takes.
    """
    plan = found.plan
    lines = [] if found.facts is None else [f"model   {found.facts}"]
    lines += [f"recipe  {_recipe(config)}", _levels(config, {level for one in plan.sweeps for level in one.levels})]
    if plan.sites is not None:
        lines.append(f"eligible: {plan.sites.described()}")
    elif plan.sites_left:
        lines.append("eligible: measured when the run begins, with one pass for each site (about a minute at 135 M)")
    if found.work is None or found.estimator is None:
        return [*lines, "left    nothing: everything is on disk"]
    lines.append(f"disk    up to {size(found.disk_bytes, 'G')}B in {config.out}")
    lines += _costs(found, flops_per_s)
    how = f"{found.jobs} processes" if found.jobs > 1 else "one process"
    rough = ", roughly: this machine's speed is not known" if found.estimator.speed is None else ""
    lines.append(f"time    about {duration(found.estimator.total(plan) / found.jobs)} in {how}{rough}")
    return lines


def describe(plan: Plan, estimator: Estimator | None = None) -> list[dict[str, str]]:
    """One line for each training and sweep, and one for the total."""
    estimator = estimator or Estimator(plan.config.out)
    rough = " (rough)" if estimator.speed is None else ""
    untrained = {training.folder for training in plan.untrained}
    lines = []
    works: list[TrainingRun | DialEvaluation] = [*plan.trainings, *plan.sweeps]
    for work in works:
        if isinstance(work, DialEvaluation):
            count, unit, taken_s, none = estimator.points_left(work), "dial values", estimator.sweep(work), "on disk"
        else:
            count, unit, taken_s = steps_left(work), "steps", estimator.training(work)
            count, none = count if work.folder in untrained else 0, "on disk" if work.steps else "nothing to train"
        again = ", failed before" if work.record.state == "failed" else ""
        state = f"{count} {unit} left{again}" if count else none
        lines.append({"work": str(work), "state": state, "time": duration(taken_s) + rough if count else ""})
    whole = duration(estimator.total(plan)) + rough
    return [*lines, {"work": "together, one after the other", "state": "", "time": whole}]


def _costs(found: Preflight, flops_per_s: float | None) -> list[str]:
    """The FLOPs of the work that is left, and the hours that they take at so many a second."""
    assert found.work is not None and found.estimator is not None
    work, batch_size = found.work, found.work.config.train.batch_size
    left = [(training.spec, count) for training in found.plan.untrained if (count := steps_left(training))]
    steps = sum(count for _, count in left)
    dial_values: Counter[str] = Counter()
    for sweep in found.plan.sweeps:
        dial_values[sweep.task] += found.estimator.points_left(sweep)
    training = sum(count * batch_size * work.training_flops(spec) for spec, count in left)
    evaluation = sum(
        count * (work.asked(task).reading + work.asked(task).writing) for task, count in dial_values.items()
    )
    lines = [
        f"FLOPs   training about {training:.1e}: {len(left)} trainings, {steps:,} steps, about "
        f"{size(steps * batch_size * work.tokens)} tokens",
        f"        evaluation about {evaluation:.1e}: {dial_values.total():,} dial values, priced as dense",
    ]
    if flops_per_s is None:
        return [*lines, "hours   say what a device sustains, for example --flops 4e14"]
    hours = [flops / flops_per_s / 3600 for flops in (training, evaluation)]
    parts = "training about {:.3g}, evaluation about {:.3g}".format(*hours)
    return [*lines, f"hours   {sum(hours):.3g} of a device at {flops_per_s:.3g} FLOP/s: {parts}"]


def _levels(config: RunConfig, levels: Iterable[float]) -> str:
    known, target = ", ".join(f"{100 * level:.3g} %" for level in sorted(levels)), config.train.target
    trained = "each trained for" if target is None else f"trained for {100 * target:.3g} %"
    return f"levels  {known} saved ({config.match_on}), {trained if config.train.steps else 'as it is'}"


def _recipe(config: RunConfig) -> str:
    train = config.train
    name = config.preset or "of the config"
    if not train.steps:
        return f"{name}: nothing is trained"
    precision = chosen(config) if train.precision == "auto" else train.precision
    own = "".join(f", {method} {rate:g}" for method, rate in train.method_learning_rates.items())
    return (
        f"{name}: {train.steps} steps of {train.batch_size} sequences, rate {train.learning_rate:g}{own}, "
        f"length {train.max_length}, {precision}{f', LoRA of rank {train.lora.rank}' if train.lora else ''}"
    )
