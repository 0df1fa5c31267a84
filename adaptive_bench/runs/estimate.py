"""Says what a run will take, and makes its recipe smaller until this machine does it in a night, or in some minutes.

A training that takes too long by the forecast first gets fewer sequences a step, then fewer steps. The evaluation gets
fewer documents and calibration examples. The choice is kept beside the records, so that the same command finds the same
run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.progress import Reporter, SilentReporter, duration
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.forecast import Estimator, Trait, Workload, steps_left
from adaptive_bench.runs.measured_settings import chosen, kept
from adaptive_bench.runs.model_checks import examine, model_facts, size
from adaptive_bench.runs.run_checks import Preflight
from adaptive_bench.runs.run_plan import Plan, plan, without_groups
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import key_of, run_key

FOLDER = "fitted"
_LEAST_BATCH = 4
_LEAST_TASKS, _LEAST_METHODS = 2, 6
_WORDS = {
    "batch_size": "sequences a step",
    "steps": "steps",
    "limit": "documents a task",
    "calibration_examples": "calibration examples",
    "max_new_tokens": "tokens an answer at most",
}


@dataclass(frozen=True)
class Limit:
    """How long a run may take, and how small it may become."""

    seconds: float  # by the forecast
    steps: int  # fewest of each training
    documents: int  # fewest of each task
    answer_tokens: int | None = None  # most of an answer; by default the task's own number
    drops: bool = False  # whether methods and tasks that the user did not name may be left out


NIGHT = Limit(8 * 3600, steps=100, documents=32)
# Short runs have taken 1.4 to 1.7 times their forecast, which counts neither optimizer nor start; 20 minutes are meant.
QUICK = Limit(12 * 60, steps=10, documents=8, answer_tokens=128, drops=True)


def fitted(
    config: RunConfig, given: Mapping[str, Any], limit: Limit, reporter: Reporter | None = None
) -> tuple[RunConfig, str]:
    """Make a config smaller if it would take longer than a limit; values `given` on the command line stay.

    Returns:
        The config, and a sentence that says what was made smaller; an empty one if nothing was.
    """
    reporter = reporter or SilentReporter()
    try:
        whole = without_groups(config)
        about = {"run": run_key(whole.model_dump(mode="json")), "seconds": limit.seconds}
        about |= {"device": find_device(config.device).type}
        file = config.out / FOLDER / f"{key_of(about)}.json"
        with reporter.task("forecast", total=1) as task:
            said = kept(file, lambda: about | _chosen(whole, given, limit))
            task.advance()
    except Exception:  # noqa: BLE001 - the checks of the run report what is wrong, together with everything else
        return config, ""
    return (_changed(config, said["changed"]), str(said["text"])) if said["text"] else (config, "")


def _taken_s(config: RunConfig, work: Workload, traits: Mapping[str, Trait]) -> float:
    """Seconds that a form of a run takes on this machine, if nothing is on disk."""
    # A folder without records: what is chosen must not depend on what happens to be done already.
    anew = config.model_copy(update={"out": config.out / FOLDER / "nothing"})
    return Estimator(anew.out, work, traits).total(plan(anew, measures=False))


def _chosen(config: RunConfig, given: Mapping[str, Any], limit: Limit) -> dict[str, Any]:
    """What changes, nested like a config, and the sentence about it, as plain values."""
    facts = model_facts(config.model)
    work = Workload(config, facts.empty, facts.source.load_tokenizer())
    traits = {text: examine(MethodSpec.parse(text), facts) or Trait() for text in config.methods}
    before_s = _taken_s(config, work, traits)
    changes: dict[str, Any] = {}
    if before_s <= limit.seconds:
        return {"changed": changes, "text": ""}
    train, measured = dict(given.get("train", {})), dict(given.get("evaluation", {}))
    small, small_s = config, before_s
    # First shorter answers, if that saves time.
    if limit.answer_tokens and not measured.get("max_new_tokens"):
        shorter = _changed(config, {"evaluation": {"max_new_tokens": limit.answer_tokens}})
        asking = work.asking(shorter)
        if (shorter_s := _taken_s(shorter, asking, traits)) < before_s:
            small, small_s, work = shorter, shorter_s, asking
            changes["evaluation"] = {"max_new_tokens": limit.answer_tokens}
    # Then training and evaluation by the same share.
    share = min(1.0, limit.seconds / small_s)
    if not {"batch_size", "steps"} <= train.keys():
        changes["train"] = _fewer(config, train, share, limit)
    for name in ("limit", "calibration_examples"):
        if name not in measured and (before := getattr(config.evaluation, name)) is not None:
            fewer = max(min(limit.documents, before), int(before * share))
            changes["evaluation"] = changes.get("evaluation", {}) | {name: fewer}
    small = _changed(config, changes)
    # Last, if the least numbers still take too long, drop tasks and then methods, from the end of their lists.
    while (small_s := _taken_s(small, work, traits)) > limit.seconds and limit.drops:
        if "tasks" not in given and len(small.tasks) > _LEAST_TASKS:
            changes["tasks"] = small.tasks[:-1]
        elif "methods" not in given and len(small.methods) > _LEAST_METHODS:
            changes["methods"] = small.methods[:-1]
        else:
            break
        small = _changed(config, changes)
    return {"changed": changes, "text": _summary(config, small, before_s, small_s)}


def _changed(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    values = config.model_dump(mode="json")
    for part, changed in changes.items():
        values[part] = {**values[part], **changed} if isinstance(changed, dict) else changed
    return RunConfig.model_validate(values)


def _fewer(config: RunConfig, named: Mapping[str, Any], share: float, limit: Limit) -> dict[str, int]:
    """Fewer sequences a step and fewer steps, which together are the given share of the training."""
    train = config.train
    batch, steps = train.batch_size, train.steps
    if "batch_size" not in named:
        least = max(min(_LEAST_BATCH, batch), train.accumulation)
        batch = max(least, int(batch * share)) // train.accumulation * train.accumulation
    if "steps" not in named:
        left = share * train.batch_size * train.steps / batch
        steps = max(min(limit.steps, train.steps), min(train.steps, int(left)))
    warmup = round(train.warmup_steps * steps / train.steps)  # the same share of the training
    return {"batch_size": batch, "steps": steps} | ({} if "warmup_steps" in named else {"warmup_steps": warmup})


def _summary(before: RunConfig, after: RunConfig, before_s: float, after_s: float) -> str:
    """The sentence `Made smaller ...`, with everything that changed or was left out."""
    parts = [
        f"{getattr(new, name)} {words}" + (f" instead of {was}" if (was := getattr(old, name)) is not None else "")
        for name, words in _WORDS.items()
        for old, new in ((before.train, after.train), (before.evaluation, after.evaluation))
        if getattr(old, name, None) != getattr(new, name, None)
    ]
    for kind in ("tasks", "methods"):
        if left_out := getattr(before, kind)[len(getattr(after, kind)) :]:
            parts.append(f"without the {kind} {', '.join(left_out)}")
    if not parts:
        return ""
    return (
        f"Made smaller for this machine, to take {duration(after_s)} instead of {duration(before_s)} by the forecast: "
        f"{'; '.join(parts)}. What the command line names stays."
    )


def about(config: RunConfig, found: Preflight) -> list[str]:
    """Lines that begin with a label."""
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
    lines += _costs(found)
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


def _costs(found: Preflight) -> list[str]:
    """The FLOPs of the work that is left."""
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
    return [
        f"FLOPs   training about {training:.1e}: {len(left)} trainings, {steps:,} steps, about "
        f"{size(steps * batch_size * work.tokens)} tokens",
        f"        evaluation about {evaluation:.1e}: {dial_values.total():,} dial values, priced as dense",
    ]


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
