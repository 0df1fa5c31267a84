"""Checks a run before it starts, each check after those that it relies on, and describes what it will take."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig, default_presets
from adaptive_bench.errors import EnvironmentProblem, UsageError, message_of
from adaptive_bench.hardware import free_on
from adaptive_bench.model.adapters import adapter_parameters
from adaptive_bench.model.tokenization import check_chat_template
from adaptive_bench.progress import Reporter, SilentReporter, duration
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.forecast import Estimator, Workload, steps_left
from adaptive_bench.runs.launching import useful_processes
from adaptive_bench.runs.measured_settings import chosen
from adaptive_bench.runs.model_checks import (
    Findings,
    ModelFacts,
    check_methods,
    check_recipe,
    load_tokenizer,
    model_facts,
    note_weights,
    size,
)
from adaptive_bench.runs.run_plan import Plan, plan, without_groups
from adaptive_bench.runs.task_checks import check_overlap, check_task, note_idle
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.training.micro_batches import VALUE_BYTES, rough_footprint, trained_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Bytes of a parameter on disk: fp32 weights; and during a training two checkpoints of weights and AdamW's two moments.
_WEIGHT_BYTES, _RESUME_BYTES = 4, 2 * 3 * 4


def preset_by_size(model: str) -> str:
    """Name of the preset for models of this size and kind.

    Raises:
        UsageError: No preset, or more than one, is for this model by default; the user has to choose.
        EnvironmentProblem: The model cannot be reached.
    """
    facts = model_facts(model)
    meant = default_presets()
    found = [name for name, models in meant.items() if models.fit(model, facts.family, facts.parameters)]
    if len(found) != 1:
        what = f"the presets {', '.join(found)} all are" if found else "no preset is"
        raise UsageError(
            f"Without --config a model gets a recipe by its size, but {what} for {facts}. Name one of `list configs`, "
            f"or a file of your own, with --config (and --any-model if it is meant for others)."
        )
    return found[0]


def check_memory(work: Workload, trained: Iterable[MethodSpec], jobs: int) -> None:
    """Compare the memory that one process needs for one sequence with its share of the free memory."""
    recipe, empty, longest = work.config.train, work.prices.empty, work.longest
    free = free_on(find_device(work.config.device))
    weights = VALUE_BYTES * sum(each.numel() for each in empty.parameters())
    backbone = Backbone(empty)
    # As if there were logits at every layer, which some methods train with.
    at_most = rough_footprint(backbone, backbone.num_layers).of(1, longest, longest)
    # 5 times the weights are enough for weights, gradients and two moments, with room for a method's own parameters.
    if free is None or 5 * weights + at_most < free / jobs:
        return
    for spec in trained:
        labels = round(longest * work.labels / work.tokens)
        # Not known of a plugin's method, or of one that reads values.
        if (step := work.prices.step(spec, recipe, longest, labels, watched=True)) is None:
            continue
        needed = weights + trained_bytes(work.prices.trainee(spec, recipe)) + step.peak_bytes
        if needed > free / jobs:
            raise EnvironmentProblem(
                f"Training {spec} needs about {size(needed, 'G')}B with one sequence of {longest} tokens at a time, "
                f"but {size(free / jobs, 'G')}B are free{f' for each of {jobs} processes' if jobs > 1 else ''}. Work "
                f"with --jobs 1, train adapters (train.lora), set train.gradient_checkpointing to true, lower "
                f"train.max_length (now {recipe.max_length}), or choose a smaller --model."
            )


@dataclass(frozen=True)
class Preflight:
    """What is known before a run.

    Attributes:
        plan: The plan.
        facts: The model; `None` if nothing is left to do, so that nothing was checked.
        notes: What a user should know, although it does not prevent the run.
        disk_bytes: Most disk space that the remaining trainings will need.
        estimator: Estimates how long each part will take; `None` if nothing is left to do.
        jobs: Number of processes that will work at once.
        work: The run's texts on its model; `None` if nothing is left to do.
    """

    plan: Plan
    facts: ModelFacts | None = None
    notes: list[str] = field(default_factory=list)
    disk_bytes: int = 0
    estimator: Estimator | None = None
    jobs: int = 1
    work: Workload | None = None


def preflight(
    config: RunConfig,
    reporter: Reporter | None = None,
    jobs: int | None = None,
    *,
    timed: bool = True,
    measures: bool = True,
) -> Preflight:
    """Check everything a run will need, and plan it. Nothing is trained, nothing is written.

    Args:
        jobs: Processes that will be used; `None` decides as `run` does.
        timed: Whether to forecast how long work will take that no record tells about.
        measures: See `plan`.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: The model, the data or the machine is not as it must be.
        PluginFault: A plugin cannot work.
        SeveralProblems: There is more than one of these.
    """
    config, reporter = without_groups(config), reporter or SilentReporter()
    findings = Findings()
    facts, whole = None, None
    with findings.checking():
        find_device(config.device)
    with findings.checking():
        facts = model_facts(config.model)
        note_weights(facts, findings)
        check_recipe(config, facts, findings)
    findings.raise_errors()  # the other checks take seconds and depend on these
    assert facts is not None
    with findings.checking():
        whole = plan(config, reporter, measures=measures)
    if whole is not None and not (findings.errors or whole.untrained or any(one.points_left() for one in whole.sweeps)):
        return Preflight(whole)
    tokenizer, traits = None, {}
    with reporter.task("check", total=2 + len(config.tasks)) as task:
        with findings.checking():
            tokenizer = load_tokenizer(facts)
            if config.chat_template:
                check_chat_template(tokenizer)
                if config.evaluation.enable_thinking is not None and "enable_thinking" not in tokenizer.chat_template:
                    findings.note("enable_thinking does nothing: the model's chat template does not ask for it.")
        task.advance(1, of="tokenizer")
        note_idle(config, findings)
        traits = check_methods(config, facts, findings)
        task.advance(1, of="methods")
        for name in config.tasks:
            with findings.checking():
                check_task(name, config, tokenizer, facts.context, findings)
            task.advance(1, of=name)
        if not findings.errors:
            with findings.checking():
                check_overlap(config, findings)
    needed = 0
    if whole is not None:
        # A training that starts from another one stores the whole model, even if the recipe has adapters.
        trained = [bool(training.steps and not training.base) for training in whole.untrained]
        needed = disk_bytes(config.train, facts.empty, trained)
        with findings.checking():
            _check_disk(config.out, needed)
    findings.raise_errors()
    assert whole is not None and tokenizer is not None
    # The most there may be: the forecast needs a number, and only then tells how few are enough for short work.
    most = jobs or useful_processes(config)
    work = Workload(config, facts.empty, tokenizer, most)
    if config.train.steps:
        check_memory(work, dict.fromkeys(each.spec for each in whole.untrained if each.steps), most)
    estimator = Estimator(config.out, work if timed else None, traits)
    try:
        with reporter.task("forecast", total=1) as task:
            seconds = estimator.total(whole)
            task.advance()
    except Exception as error:  # noqa: BLE001 - a forecast must not prevent a run: its work reports what is wrong
        reporter.line(f"How long the run takes is not known: the forecast failed ({message_of(error)}).")
        estimator = Estimator(config.out, None, traits)
        seconds = estimator.total(whole)
    jobs = jobs or useful_processes(config, seconds)
    return Preflight(whole, facts, findings.notes, needed, estimator, jobs, work)


def disk_bytes(recipe: TrainRecipe, empty: PreTrainedModel, trained: Sequence[bool]) -> int:
    """Bytes for the final checkpoints of trainings, and for the resume checkpoints of the one in progress.

    Args:
        trained: For each training, whether it keeps adapters alone if the recipe has adapters.
    """
    whole = sum(parameter.numel() for parameter in empty.parameters())
    learned = whole if recipe.lora is None else adapter_parameters(empty, recipe.lora)
    running = _RESUME_BYTES * learned if recipe.steps and trained else 0
    return running + _WEIGHT_BYTES * sum(learned if each else whole for each in trained)


def _check_disk(out: Path, needed: int) -> None:
    folder = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    with atomic.writable(out):
        free = shutil.disk_usage(f"{folder}/.").free  # an error if it is a file
    if free < needed:
        raise EnvironmentProblem(
            f"The trainings of this run need up to {size(needed, 'G')}B of disk space, but {str(folder)!r} has "
            f"{size(free, 'G')}B. Free some space or choose another folder with --out."
        )


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
    rough = ", roughly: this machine's speed is not known" if found.estimator.work is None else ""
    lines.append(f"time    about {duration(found.estimator.total(plan) / found.jobs)} in {how}{rough}")
    return lines


def describe(plan: Plan, estimator: Estimator | None = None) -> list[dict[str, str]]:
    """One line for each training and sweep, and one for the total."""
    estimator = estimator or Estimator(plan.config.out)
    rough = " (rough)" if estimator.work is None else ""
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
    hours = [flops / flops_per_s / 3600 for flops in (training + evaluation, training, evaluation)]
    said = "{:.3g} of a device at {:.3g} FLOP/s: training about {:.3g}, evaluation about {:.3g}"
    return [*lines, f"hours   {said.format(hours[0], flops_per_s, *hours[1:])}"]


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
