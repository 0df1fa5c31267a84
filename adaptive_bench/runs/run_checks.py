"""Checks a run before it starts: model, methods, tasks, memory and disk, and test documents in its training text."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.backbone import Backbone
from adaptive_bench.config import RunConfig
from adaptive_bench.data.overlap import RUN, OverlapCounter, words_of
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, blame, message_of
from adaptive_bench.evaluation.documents import answer_of, are_of_tested, ask_only
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.loading import quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.hardware import free_on
from adaptive_bench.hub import raise_together
from adaptive_bench.model.adapters import adapter_parameters
from adaptive_bench.model.tokenization import check_chat_template, conversation
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.runs.backbone_source import find_device
from adaptive_bench.runs.forecast import Estimator, Workload, asked_documents
from adaptive_bench.runs.launching import useful_processes
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
from adaptive_bench.runs.training_text import draw_training
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store import atomic
from adaptive_bench.task import Task
from adaptive_bench.training.micro_batches import VALUE_BYTES, rough_footprint, trained_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Bytes of a parameter on disk: fp32 weights; and during a training two checkpoints of weights and AdamW's two moments.
_WEIGHT_BYTES, _RESUME_BYTES = 4, 2 * 3 * 4
_LONGEST = 8  # documents whose whole prompt is built and measured


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
    """What is known before a run."""

    plan: Plan
    facts: ModelFacts | None = None  # the model; `None` if nothing is left to do, so that nothing was checked
    notes: list[str] = field(default_factory=list)  # what a user should know, although it does not prevent the run
    disk_bytes: int = 0  # most disk space that the remaining trainings will need
    estimator: Estimator | None = None  # estimates how long each part will take; `None` if nothing is left to do
    jobs: int = 1  # number of processes that will work at once
    work: Workload | None = None  # the run's texts on its model; `None` if nothing is left to do


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
    raise_together(findings.errors)  # the other checks take seconds and depend on these
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
        task.advance(1, of="tokenizer")
        with findings.checking():
            check_phase(config, findings)
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
    raise_together(findings.errors)
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
    """Bytes for the final checkpoints of trainings, and for the resume checkpoints of the one in progress; `trained`
    says of each whether it keeps adapters alone if the recipe has adapters.
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


def check_task(
    name: str, config: RunConfig, tokenizer: PreTrainedTokenizerBase | None, context: int, findings: Findings
) -> None:
    """Read all documents of a task, and check the longest ones against the model's context of so many tokens, unless
    its tokenizer could not be loaded.
    """
    task = find_task(name)
    with quiet():
        with _telling(f"The documents of {name!r} cannot be read", "Check the data."):
            harness, numbers = asked_documents(task, config)
            every = list(harness.eval_docs)
        if not every:
            raise EnvironmentProblem(f"The task {name!r} has no documents to be evaluated on. Check --data-dir.")
        documents = [every[number] for number in numbers]
        answers = [
            answer_of(harness, document, f"document {number + 1} of {len(every)} of {name!r}")
            for number, document in zip(numbers, documents, strict=True)
        ]
        _note_shots(task, harness, findings)
        ask_only(harness, [numbers[place] for place in _longest(harness, documents, answers)])
        _build_requests(task, harness, config, tokenizer)
    if tokenizer is not None:
        _check_length(task, harness, tokenizer, context, findings, skips=config.evaluation.skip_overlong)


def _note_shots(task: Task, harness: HarnessTask, findings: Findings) -> None:
    wanted = int(harness.config.num_fewshot or 0)
    if wanted and harness.OUTPUT_TYPE == "loglikelihood_rolling":
        findings.note(f"--num-fewshot {wanted} does nothing on {task.name}: whole texts are scored there.")
    elif wanted and are_of_tested(harness):
        findings.note(
            f"Worked examples of {task.name} are drawn from its split {harness.config.test_split!r}, which is the one "
            f"tested: no document is among its own, but all are answers to other test documents."
        )


def _longest(harness: HarnessTask, documents: Sequence[Any], answers: Sequence[Sequence[str]]) -> list[int]:
    """The documents with the longest prompts, and those with the longest answers."""
    numbers = range(len(documents))
    by_prompt = sorted(numbers, key=lambda number: -len(str(harness.doc_to_text(documents[number]))))
    by_answer = sorted(numbers, key=lambda number: -max(map(len, answers[number]), default=0))
    return sorted({*by_prompt[:_LONGEST], *by_answer[:_LONGEST]})


@contextmanager
def _telling(what: str, mend: str) -> Iterator[None]:
    """Report an error in a task's own code with whose fault it is."""
    try:
        yield
    except AdaptiveBenchError:
        raise
    except Exception as error:  # a task's own code
        blame(error, what)
        raise EnvironmentProblem(f"{what}: {type(error).__name__}: {message_of(error)[:300]}. {mend}") from error


def _build_requests(
    task: Task, harness: HarnessTask, config: RunConfig, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    how, chat = config.evaluation, None
    if config.chat_template and tokenizer is not None:
        chat = partial(conversation, tokenizer, enable_thinking=how.enable_thinking)
    with _telling(f"The prompts of {task.name!r} cannot be built", "Check the data and --num-fewshot."):
        harness.build_all_requests(
            system_instruction=how.system_prompt,
            apply_chat_template=chat is not None,
            fewshot_as_multiturn=chat is not None,
            chat_template=chat,
        )


def _check_length(
    task: Task,
    harness: HarnessTask,
    tokenizer: PreTrainedTokenizerBase,
    context: int,
    findings: Findings,
    *,
    skips: bool,
) -> None:
    """Compare the requests of a task with the context: some are left out (`skips`), cut, or not possible at all."""

    def count(text: str) -> int:
        return len(tokenizer(text).input_ids)

    shots = int(harness.config.num_fewshot or 0)
    mend = f"{'Lower --num-fewshot or choose' if shots else 'Choose'} a model with a longer context"
    left: tuple[int, int] | None = None
    cut = 0, ""  # the longest prompt that is cut; noted at the end, because a later one may have no room at all
    for request in harness.instances:
        number = request.doc_id + 1
        if request.request_type == "generate_until":
            tokens, room = count(request.args[0]), GenerationSettings.read(request.args[1]).max_new_tokens
            is_long = is_impossible = tokens >= context
            is_cut = tokens + room > context
            loss = (
                f"leave {context - tokens} of {room} tokens for the answer: it is cut at the end of the context of "
                f"{context} tokens."
            )
        elif request.request_type == "loglikelihood":
            tokens = count("".join(request.args))
            is_long = is_cut = tokens > context + 1  # the last token is only a label
            is_impossible = count(request.args[1]) > context
            loss = f"lose their beginning: the model's context has {context} tokens. {mend} to keep them whole."
        else:
            continue
        if is_long and skips:
            left = number, tokens
        elif is_impossible:
            raise UsageError(
                f"A text must fit the context of {context} tokens with room for an answer, but with {shots} worked "
                f"examples document {number} of {task.name!r} has {tokens}. {mend}, or leave such documents out with "
                f"--skip-overlong."
            )
        elif is_cut:
            cut = max(cut, (tokens, loss))
    if left:
        findings.note(
            f"Documents of {task.name} that are too long for the context of {context} tokens, such as document "
            f"{left[0]} with {left[1]}, are left out for every method alike; the table will say how many."
        )
    if cut[0]:
        findings.note(f"The longest prompts of {task.name} ({cut[0]} tokens with {shots} worked examples) {cut[1]}")


def check_phase(config: RunConfig, findings: Findings) -> None:
    """Note tasks without a table in the phase that methods are matched in, and refuse a run of such tasks alone."""
    tasks = [find_task(name) for name in config.tasks]
    scored = ", ".join(task.name for task in tasks if task.kind == "loglikelihood")
    if config.match_phase != "decode" or not scored:
        return
    if all(task.kind == "loglikelihood" for task in tasks):
        raise UsageError(
            f"--phase decode matches methods on tokens that are fed one by one, got only {scored}, where no token is. "
            f"Leave --phase out, or add a task that writes."
        )
    findings.note(f"With --phase decode {scored} has no table: no token is fed one by one there.")


def check_overlap(config: RunConfig, findings: Findings) -> None:
    """Note for each task how many of its test documents stand in the training text of any seed, by the rule of
    `data.overlap`.
    """
    if not config.train.steps:
        return
    asked: dict[str, OverlapCounter] = {}
    with quiet():
        for task in map(find_task, config.tasks):
            harness, numbers = asked_documents(task, config)
            every = harness.eval_docs
            asked[task.name] = OverlapCounter([_asked(harness, every[number]) for number in numbers])
    seen: set[int] = set()  # hashes of examples, because seeds draw many of the same ones
    for seed in config.seeds:
        for one in draw_training(config, seed, SilentReporter()):
            if (known := hash(one)) not in seen:
                seen.add(known)
                words = words_of(one.prompt + one.completion)
                for standing in asked.values():
                    standing.look(one.prompt.strip() or one.completion, words)
    for name, standing in asked.items():
        if found := standing.found:
            count = len(standing)
            findings.note(
                f"{found} of {count} test documents of {name} ({found / count:.1%}) stand in the training text, by "
                f"{RUN} words in a row (docs/data.md): what they score may be remembered."
            )


def _asked(harness: HarnessTask, document: Any) -> str:
    text = harness.doc_to_text(document)
    if isinstance(text, int):  # the choices are questions with a common end, and `text` is the place of the right one
        return f"{harness.doc_to_choice(document)[text]} {harness.doc_to_target(document)}"
    return (text.strip() if isinstance(text, str) else "") or str(harness.doc_to_target(document)).strip()
