"""What a run is going to be, in a few lines: the model, the recipe, what it takes."""

from __future__ import annotations

from adaptive_bench.config import RunConfig
from adaptive_bench.progress import duration
from adaptive_bench.runs.checks.model import size
from adaptive_bench.runs.estimate import steps_left, total
from adaptive_bench.runs.preflight import Preflight

_TRAINING_FLOPS = 6  # per parameter and token: forward, and twice that backward


def about(config: RunConfig, found: Preflight) -> list[str]:
    """Lines of a label and a text."""
    lines = [] if found.facts is None else [f"model   {found.facts}"]
    lines.append(f"recipe  {_recipe(config)}")
    if found.facts is None or found.estimator is None:
        return [*lines, "left    nothing: everything is on disk"]
    steps = sum(steps_left(cell) for cell in found.plan.cells)
    longest = min(config.train.max_length, found.facts.context)
    length = found.estimator.sequence_tokens()
    tokens = steps * config.train.batch_size * (length or longest)
    flops = _TRAINING_FLOPS * found.facts.parameters * tokens
    most = "" if length else "up to "
    lines.append(f"disk    up to {size(found.disk_bytes)}B in {config.out}")
    lines.append(f"FLOPs   {most}{flops:.1e} of training: {steps:,} steps, {most}{size(tokens)} tokens")
    estimate = total(found.plan, found.estimator)
    how = f"{found.jobs} processes" if found.jobs > 1 else "one process"
    rough = ", roughly: no record and no measurement of this model" if estimate.rough else ""
    lines.append(f"time    about {duration(estimate.seconds / found.jobs)} in {how}{rough}")
    return lines


def _recipe(config: RunConfig) -> str:
    train = config.train
    name = config.preset or "of the config"
    if not train.steps:
        return f"{name}: nothing is trained"
    own = "".join(f", {method} {rate:g}" for method, rate in train.method_learning_rates.items())
    return (
        f"{name}: {train.steps} steps of {train.batch_size} sequences, rate {train.learning_rate:g}{own}, "
        f"length {train.max_length}, {train.precision}"
    )
