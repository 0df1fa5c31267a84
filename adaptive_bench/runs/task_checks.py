"""Checks the tasks of a run: documents, worked examples, longest prompts, and test documents in the training text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.config import RunConfig
from adaptive_bench.data.overlap import RUN, OverlapCounter, words_of
from adaptive_bench.errors import AdaptiveBenchError, EnvironmentProblem, UsageError, blame, message_of
from adaptive_bench.evaluation.documents import answer_of, are_of_tested, ask_only
from adaptive_bench.evaluation.generation_settings import GenerationSettings
from adaptive_bench.evaluation.loading import quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model.tokenization import conversation
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.forecast import asked_documents
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
    if len(documents) == 1:
        findings.note(
            f"{task.name} is measured on one document: its scores have no interval over documents, so no methods can "
            f"be told apart there. Give more documents in its data, or a higher --limit."
        )


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
    """Compare the requests of a task with the context: some are left out, cut, or not possible at all.

    Args:
        skips: Whether documents that are too long are left out.
    """

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
