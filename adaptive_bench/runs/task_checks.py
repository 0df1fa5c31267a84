"""Checks the tasks of a run: documents, worked examples, longest prompts, and test documents in the training text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import error_origin
from adaptive_bench.config import RunConfig
from adaptive_bench.data.overlap import RUN, Standing, words_of
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, message_of
from adaptive_bench.evaluation.documents import answer_of, are_of_tested, ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED, set_writing
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.model.tokenization import conversation
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import EvalRecipe
from adaptive_bench.runs.model_checks import Findings
from adaptive_bench.runs.training_text import draw_training
from adaptive_bench.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_LONGEST = 8  # documents whose whole prompt is built and measured


def check_task(
    name: str, config: RunConfig, tokenizer: PreTrainedTokenizerBase | None, context: int, findings: Findings
) -> None:
    """Read all documents of a task, and check the longest ones against the model's context.

    Args:
        tokenizer: The model's tokenizer; `None` if it could not be loaded.
        context: The model's context in tokens.

    Raises:
        UsageError: A prompt does not fit the context, or there are too few documents for the worked examples.
        EnvironmentProblem: The data cannot be read, or a document has no answer.
    """
    task = find_task(name)
    how = config.evaluation
    harness = copy(load_task(task, config.data_dir, how.num_fewshot))
    set_writing(harness, how.temperature, how.stop_strings, how.max_new_tokens)
    with quiet():
        every = _documents(task, harness)
        numbers = drawn(task, len(every), config.evaluation.limit)
        documents = [every[number] for number in numbers]
        answers = [
            answer_of(harness, document, f"document {number + 1} of {len(every)} of {name!r}")
            for number, document in zip(numbers, documents, strict=True)
        ]
        _check_shots(task, harness, config.evaluation.num_fewshot, findings)
        if tokenizer is None:
            return
        thinking = how.enable_thinking
        chat = partial(conversation, tokenizer, enable_thinking=thinking) if config.chat_template else None
        asked = [numbers[place] for place in _longest(harness, documents, answers)]
        _check_length(task, harness, asked, tokenizer, context, findings, chat, how)
    if len(documents) == 1:
        findings.note(
            f"{task.name} is measured on one document: its scores have no interval over documents, so no methods can "
            f"be told apart there. Give more documents in its data, or a higher --limit."
        )


def _documents(task: Task, harness: HarnessTask) -> list[Any]:
    with _telling(f"The documents of {task.name!r} cannot be read", "Check the data."):
        documents = list(harness.eval_docs)
    if not documents:
        raise EnvironmentProblem(f"The task {task.name!r} has no documents to be evaluated on. Check --data-dir.")
    return documents


def _check_shots(task: Task, harness: HarnessTask, asked: int | None, findings: Findings) -> None:
    wanted = int(harness.config.num_fewshot or 0)
    if not wanted:
        return
    if harness.OUTPUT_TYPE == "loglikelihood_rolling":
        findings.note(f"--num-fewshot {wanted} does nothing on {task.name}: whole texts are scored there.")
        return
    try:
        available = len(list(harness.fewshot_docs()))
    except Exception:  # noqa: BLE001 - lm-eval draws from the evaluated split then
        available = len(list(harness.eval_docs))
    if wanted >= available:
        who, mend = (
            ("--num-fewshot", "Lower --num-fewshot") if asked is not None else ("the task itself", "Give --num-fewshot")
        )
        raise UsageError(
            f"Worked examples are drawn without repetition, but {task.name!r} has {available} documents to draw from "
            f"and {who} asks for {wanted}. {mend}: at most {available - 1}."
        )
    if are_of_tested(harness):
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
        error_origin.blame(error, what)
        raise EnvironmentProblem(f"{what}: {type(error).__name__}: {message_of(error)[:300]}. {mend}") from error


def _check_length(
    task: Task,
    harness: HarnessTask,
    asked: list[int],
    tokenizer: PreTrainedTokenizerBase,
    context: int,
    findings: Findings,
    chat: Callable[..., str] | None,
    how: EvalRecipe,
) -> None:
    harness.set_fewshot_seed(FEWSHOT_SEED)
    ask_only(harness, asked)
    with _telling(f"The prompts of {task.name!r} cannot be built", "Check the data and --num-fewshot."):
        harness.build_all_requests(
            system_instruction=how.system_prompt,
            apply_chat_template=chat is not None,
            fewshot_as_multiturn=chat is not None,
            chat_template=chat,
        )
    shots = int(harness.config.num_fewshot or 0)
    mend = f"{'Lower --num-fewshot or choose' if shots else 'Choose'} a model with a longer context"
    left: tuple[int, int] | None = None
    most, said = 0, ""  # about the longest prompt; noted at the end, because a later prompt may have no room at all
    for request in harness.instances:
        number = request.doc_id + 1
        if request.request_type == "generate_until":
            tokens, room = _count(request.args[0], tokenizer), GenerationSettings.read(request.args[1]).max_new_tokens
            if tokens >= context and how.skip_overlong:
                left = number, tokens
                continue
            if tokens >= context:
                raise UsageError(
                    f"A prompt must leave room for an answer in the context of {context} tokens, but with {shots} "
                    f"worked examples document {number} of {task.name!r} has {tokens}. {mend}, or leave "
                    f"such documents out with --skip-overlong."
                )
            if tokens + room > context and tokens > most:
                most = tokens
                said = (
                    f"The longest prompts of {task.name} ({tokens} tokens with {shots} worked examples) leave "
                    f"{context - tokens} of {room} tokens for the answer: it is cut at the end of the context of "
                    f"{context} tokens."
                )
        elif request.request_type == "loglikelihood":
            tokens = _count("".join(request.args), tokenizer)
            if tokens > context + 1 and how.skip_overlong:
                left = number, tokens
                continue
            if _count(request.args[1], tokenizer) > context:
                raise UsageError(
                    f"A continuation must fit the context of {context} tokens, but document {number} of "
                    f"{task.name!r} has a longer one. Choose a model with a longer context, or leave such documents "
                    f"out with --skip-overlong."
                )
            if tokens > context + 1 and tokens > most:
                most = tokens
                said = (
                    f"The longest prompts of {task.name} ({tokens} tokens with {shots} worked examples) lose their "
                    f"beginning: the model's context has {context} tokens. {mend} to keep them whole."
                )
    if left:
        findings.note(
            f"Documents of {task.name} that are too long for the context of {context} tokens, such as document "
            f"{left[0]} with {left[1]}, are left out for every method alike; the table will say how many."
        )
    if said:
        findings.note(said)


def _count(text: str, tokenizer: PreTrainedTokenizerBase) -> int:
    return len(tokenizer(text).input_ids)


def note_idle(config: RunConfig, findings: Findings) -> None:
    """Note settings that have no effect on some tasks, and refuse a run whose table would be empty."""
    tasks = [find_task(name) for name in config.tasks]
    scored = ", ".join(task.name for task in tasks if task.kind == "loglikelihood")
    if not scored:
        return
    if config.evaluation.temperature is not None:
        findings.note(f"A temperature does nothing on {scored}: given answers are scored there, and none is sampled.")
    if config.match_phase != "decode":
        return
    if all(task.kind == "loglikelihood" for task in tasks):
        findings.stop(
            UsageError(
                f"--phase decode matches methods on tokens that are fed one by one, got only {scored}, where no token "
                f"is. Leave --phase out, or add a task that writes."
            )
        )
    else:
        findings.note(f"With --phase decode {scored} has no table: no token is fed one by one there.")


def check_overlap(config: RunConfig, findings: Findings) -> None:
    """Note for each task how many of its test documents stand in the training text of any seed, by the rule of
    `data.overlap`.
    """
    if not config.train.steps:
        return
    asked: dict[str, Standing] = {}
    with quiet():
        for task in map(find_task, config.tasks):
            harness = load_task(task, config.data_dir, config.evaluation.num_fewshot)
            every: Any = harness.eval_docs
            numbers = drawn(task, len(every), config.evaluation.limit)
            asked[task.name] = Standing([_asked(harness, every[number]) for number in numbers])
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
