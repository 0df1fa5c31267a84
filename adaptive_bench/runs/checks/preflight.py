"""All checks in an order in which each can rely on what came before; one that cannot run is left out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.hub import OutOfReach
from adaptive_bench.jobs.job import needs_own_process
from adaptive_bench.model.adapters import adapter_parameters
from adaptive_bench.model.tokenization import check_chat_template
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.checks.apart import check_overlap
from adaptive_bench.runs.checks.calibration import check_calibration_text
from adaptive_bench.runs.checks.findings import Findings
from adaptive_bench.runs.checks.idle import note_idle
from adaptive_bench.runs.checks.memory import check_memory
from adaptive_bench.runs.checks.model import (
    ModelFacts,
    check_methods,
    check_recipe,
    load_tokenizer,
    model_facts,
    note_weights,
    size,
)
from adaptive_bench.runs.checks.tasks import check_task, check_training_text
from adaptive_bench.runs.cost.budget import Workload
from adaptive_bench.runs.cost.estimate import Estimator, total
from adaptive_bench.runs.cost.speed import Speed, forecast
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.runs.planning.plan import Plan, plan, without_groups
from adaptive_bench.runs.planning.training_text import training_tasks
from adaptive_bench.runs.work.resources import useful_processes
from adaptive_bench.store import atomic
from adaptive_bench.store.runs import check_home
from adaptive_bench.task import ExampleRequest, Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Of a training on disk: fp32 weights, and while it runs two checkpoints of weights and AdamW's two moments.
_WEIGHT_BYTES, _RESUME_BYTES = 4, 2 * 3 * 4


@dataclass(frozen=True)
class Preflight:
    """What is known before a run.

    Attributes:
        plan: The plan.
        facts: The model; `None` where nothing is left to do and nothing was looked at.
        notes: What a user should know, though it stands in nobody's way.
        disk_bytes: Space the trainings that are left will need at most.
        estimator: Knows how long each part will take; `None` where nothing is left to do.
        jobs: Processes that will work at once.
        work: The text of the run in numbers, if it was forecast.
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
        timed: Whether to forecast how long the work will take where no record knows.
        measures: See `plan`.

    Raises:
        UsageError: The config names something that does not exist or does not fit together.
        EnvironmentProblem: Model, data or machine are not as they must be.
        PluginFault: A plugin cannot work.
        SeveralProblems: More than one of these.
    """
    config, reporter = without_groups(config), reporter or SilentReporter()
    findings = Findings()
    facts, whole = None, None
    with findings.checking():
        check_home(config.out)
    with findings.checking():
        find_device(config.device)
    with findings.checking():
        facts = model_facts(config.model)
        note_weights(facts, findings)
        check_recipe(config, facts, findings)
    if len(findings.errors) == 1 and isinstance(findings.errors[0], OutOfReach):
        raise_all_missing(config, findings.errors[0])
    findings.raise_errors()  # the rest takes seconds and rests on these
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
        with findings.checking():
            check_calibration_text(config, traits)
        task.advance(1, of="methods")
        for name in config.tasks:
            with findings.checking():
                check_task(name, config, tokenizer, facts.context, findings)
            task.advance(1, of=name)
        if tokenizer is not None and not findings.errors:
            for trained_on in training_tasks(config):
                with findings.checking():
                    check_training_text(trained_on, config, tokenizer, facts.context, findings)
            with findings.checking():
                check_overlap(config, findings)
    needed = 0
    if whole is not None:
        trained = [bool(training.steps and not training.base) for training in whole.untrained]
        needed = disk_bytes(config.train, facts.empty, trained)
        with findings.checking():
            _check_disk(config.out, needed)
    findings.raise_errors()
    assert whole is not None and tokenizer is not None
    most = jobs or useful_processes(config)
    work = Workload(config, facts.empty, tokenizer)
    if config.train.steps:
        check_memory(work, dict.fromkeys(each.spec for each in whole.untrained if each.steps), most)
    speed = _forecast(work, whole, most, reporter) if timed else None
    estimator = Estimator(config.out, speed, traits)
    jobs = jobs or useful_processes(config, total(whole, estimator).seconds)
    return Preflight(whole, facts, findings.notes, needed, estimator, jobs, work)


def _forecast(work: Workload, whole: Plan, jobs: int, reporter: Reporter) -> Speed | None:
    """What the work will take, unless the records know."""
    known = Estimator(whole.config.out)
    if not any(known.training(training).rough for training in whole.trainings) and not any(
        known.sweep(sweep).rough for sweep in whole.sweeps
    ):
        return None
    # What plugins do takes place elsewhere; what their trainings take shows when they run.
    trained = dict.fromkeys(
        each.spec for each in whole.trainings if each.steps and not needs_own_process(each.spec.name)
    )
    try:
        with reporter.task("forecast", total=len(trained) + 2) as task:
            return forecast(work, trained, jobs, task)
    except Exception as error:  # noqa: BLE001 - a forecast prevents no run: if this is in its way, its work says so
        reporter.line(f"How long the run takes is not known: the forecast failed ({message_of(error)}).")
        return None


def raise_all_missing(config: RunConfig, error: OutOfReach) -> NoReturn:
    """Tell of a model that is out of reach together with the data that is, so that all can be fetched at once.

    Raises:
        OutOfReach: Both.
        SeveralProblems: Data is wrong in other ways besides.
    """
    findings = Findings()
    findings.stop(error)
    for name in config.tasks:
        with findings.checking():
            check_task(name, config, None, 0, findings)
    trained_on: list[Task] = []
    with findings.checking():
        trained_on = training_tasks(config) if config.train.steps else []
    for task in trained_on:
        with findings.checking():
            task.examples(ExampleRequest("train", 1, config.seeds[0], config.data_dir))
    findings.raise_errors()
    raise error


def disk_bytes(recipe: TrainRecipe, empty: PreTrainedModel, trained: Sequence[bool]) -> int:
    """Space for the checkpoints of trainings, and for what the one that is under way can go on from.

    Args:
        trained: For each training, whether adapters would be all it keeps.
    """
    whole = sum(parameter.numel() for parameter in empty.parameters())
    learned = whole if recipe.lora is None else adapter_parameters(empty, recipe.lora)
    running = _RESUME_BYTES * learned if recipe.steps and trained else 0
    return running + _WEIGHT_BYTES * sum(learned if each else whole for each in trained)


def _check_disk(out: Path, needed: int) -> None:
    folder = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not folder.is_dir():
        raise EnvironmentProblem(
            f"The output folder must be a folder, got the file {str(folder)!r}. Choose another --out."
        )
    with atomic.writable(out):
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise EnvironmentProblem(
            f"The trainings of this run need up to {size(needed, 'G')}B of disk space, but {str(folder)!r} has "
            f"{size(free, 'G')}B. "
            "Free some space or choose another folder with --out."
        )
