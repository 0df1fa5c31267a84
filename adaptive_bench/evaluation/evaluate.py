"""Evaluates an adaptive model, as its dial stands, on one lm-eval task."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed
from accelerate.utils.memory import clear_device_cache
from lm_eval import evaluator
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import processes
from adaptive_bench.data import revision
from adaptive_bench.errors import PluginFault
from adaptive_bench.evaluation.drawn import ask_only, drawn
from adaptive_bench.evaluation.finite import check_metrics
from adaptive_bench.evaluation.language_model import AdaptiveLM, OutOfMemory
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.overlong import leave_out
from adaptive_bench.evaluation.quiet import quiet
from adaptive_bench.model.tokenization import template_digest
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.task import DocumentSplit, Task

if TYPE_CHECKING:
    from lm_eval.api.task import Task as HarnessTask
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


# What `lm_eval.simple_evaluate` seeds NumPy, torch and the draw of worked examples with unless told otherwise, and
# Python. They are no seeds of a training: every training is asked the same questions.
FEWSHOT_SEED = 1234
PYTHON_SEED = 0


def evaluate(
    model: AdaptiveModel,
    tokenizer: PreTrainedTokenizerBase,
    task_name: str,
    *,
    data_dir: Path | None = None,
    limit: int | None = None,
    documents: Sequence[int] | None = None,
    num_fewshot: int | None = None,
    batch_size: int = 64,
    seed: int = FEWSHOT_SEED,
    split: DocumentSplit = "test",
    chat_template: bool = False,
    prefix: str = "",
    temperature: float | None = None,
    stop_strings: Sequence[str] | None = None,
    max_new_tokens: int | None = None,
    system_prompt: str | None = None,
    enable_thinking: bool | None = None,
    skip_overlong: bool = False,
    progress: Reporter | None = None,
) -> tuple[Evaluation, list[Sample]]:
    """Score the model on a task and measure what it saved.

    The model's ledger is reset first. When memory runs out the batch is halved and the task starts again, so that all
    documents are evaluated at one batch size and nothing is counted twice.

    Several processes share an evaluation (`processes.Processes.sharing`) if all of them call this with the same
    arguments; they share the batches, and get the same result.

    Args:
        model: Evaluated with its current dial, in evaluation mode; its mode is put back afterwards.
        tokenizer: The model's tokenizer.
        task_name: A task of ours, of a plugin, or of lm-eval.
        data_dir: Folder with local data files; `None` reads the hub.
        limit: Only so many documents, drawn with one seed for every model (see `drawn`).
        documents: Only these, by their numbers in the split, ascending.
        num_fewshot: Worked examples before each question; `None` for the task's own number.
        batch_size: Sequences evaluated together.
        seed: For worked examples and for tasks that sample. By default worked examples are those of lm-eval itself.
        split: Test documents, or validation documents to make choices on.
        chat_template: Put prompts into the tokenizer's chat template, each worked example as an exchange of its own, as
            lm-eval does by default with `--apply_chat_template`.
        prefix: Text before every prompt: the same question asked in another way.
        temperature: Of tasks that write, draw what is written at this temperature; by default as the task says.
        stop_strings, max_new_tokens: What ends an answer, in place of what the task says; as lm-eval's `gen_kwargs`.
        system_prompt: Text before every prompt, or the system's turn of a chat; lm-eval's `system_instruction`.
        enable_thinking: Given to the chat template, where it is not `None`.
        skip_overlong: Leave out documents that are too long for the context; their numbers are `data["overlong"]`.
        progress: Shows progress and says aloud when the batch is halved.

    Returns:
        The evaluation, and one sample per document.

    Raises:
        UsageError: Unknown task, no validation documents, or a prompt that does not fit into the context.
        EnvironmentProblem: The data cannot be read, or memory does not suffice for one sequence.
        PluginFault: lm-eval gives no such headline metric, or a task gives values beyond a metric's bounds.
    """
    reporter = progress or SilentReporter()
    task = find_task(task_name)
    load = partial(_load, task, data_dir, num_fewshot, split, prefix, (temperature, stop_strings, max_new_tokens))
    choose = partial(_choose, task, limit, documents)
    was_training = model.training
    model.eval()
    try:
        while True:
            try:
                return _evaluate_once(
                    model,
                    task,
                    load,
                    choose,
                    partial(AdaptiveLM, model, tokenizer, seed=seed, enable_thinking=enable_thinking),
                    batch_size,
                    seed,
                    chat_template=chat_template,
                    system_prompt=system_prompt,
                    skip_overlong=skip_overlong,
                    reporter=reporter,
                )
            except OutOfMemory:
                if batch_size == 1:
                    raise
            # Outside the handler: its traceback would keep the tensors of the failed batch alive.
            batch_size //= 2
            clear_device_cache(garbage_collection=True)
            reporter.line(f"{task_name}: memory ran out, starting again with {batch_size} sequence(s) at a time.")
    finally:
        model.train(was_training)


def _load(
    task: Task,
    data_dir: Path | None,
    num_fewshot: int | None,
    split: DocumentSplit,
    prefix: str,
    writing: tuple[float | None, Sequence[str] | None, int | None],
) -> HarnessTask:
    loaded = load_task(task, data_dir, num_fewshot, split)
    if prefix:
        loaded.config.description = prefix + (loaded.config.description or "")
    set_writing(loaded, *writing)
    return loaded


def set_writing(
    loaded: HarnessTask, temperature: float | None, stop_strings: Sequence[str] | None, max_new_tokens: int | None
) -> None:
    """Have a task's answers written in another way than it says, where one is given; see `evaluate`."""
    asked: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    asked |= {"until": list(stop_strings)} if stop_strings else {}
    asked |= {"max_gen_toks": max_new_tokens} if max_new_tokens else {}
    if asked and loaded.OUTPUT_TYPE == "generate_until":
        loaded.config.generation_kwargs = {**(loaded.config.generation_kwargs or {}), **asked}


def _choose(task: Task, limit: int | None, documents: Sequence[int] | None, harness: HarnessTask) -> None:
    if documents is None and limit is not None:
        documents = drawn(task, len(harness.eval_docs), limit)
    if documents is not None:
        ask_only(harness, documents)


def _evaluate_once(
    model: AdaptiveModel,
    task: Task,
    load: Callable[[], HarnessTask],
    choose: Callable[[HarnessTask], None],
    make_lm: Callable[..., AdaptiveLM],
    batch_size: int,
    seed: int,
    *,
    chat_template: bool,
    system_prompt: str | None,
    skip_overlong: bool,
    reporter: Reporter,
) -> tuple[Evaluation, list[Sample]]:
    model.reset_ledger()
    set_seed(seed)  # some tasks shuffle with a global generator, when they are loaded or asked
    random.seed(PYTHON_SEED)
    harness_task = load()
    choose(harness_task)
    harness_task.set_fewshot_seed(seed)
    dial = model.method.dial
    at = f", {dial.name} {model.dial:.3g}" if dial.minimum < dial.maximum else ""
    label = f"{task.name}, {model.spec}{at}"
    lm = make_lm(batch_size=batch_size, label=label, reporter=reporter)
    overlong = leave_out(harness_task, lm.fits) if skip_overlong else []
    with quiet():
        results = evaluator.evaluate(
            lm,
            {"tasks": {task.name: harness_task}, "groups": {}, "group_map": {}},
            bootstrap_iters=0,
            system_instruction=system_prompt,
            apply_chat_template=chat_template,
            fewshot_as_multiturn=chat_template,
        )
    _pool_counts(model, lm)
    scores = {
        key: float(value)
        for key, value in results["results"][task.name].items()
        if "," in key and "_stderr" not in key and isinstance(value, Real)
    }
    if task.metrics[0] not in scores:
        raise PluginFault(
            f"The headline metric of the task {task.name!r} is {task.metrics[0]!r}, but lm-eval gave {sorted(scores)}. "
            f"Correct the task's metrics."
        )
    check_metrics(scores, f"the task {task.name!r}")
    samples = samples_of(results["samples"][task.name], task)
    report = model.compute_report()
    evaluation = Evaluation(
        task=task.name,
        dial=float(model.dial),
        scores=scores,
        docs=len(samples),
        savings=report["saved"],
        report=report,
        time_s=lm.time_s,
        prompt_tokens=lm.prompt_tokens,
        generated_tokens=lm.generated_tokens,
        batch_size=batch_size,
        num_fewshot=harness_task.config.num_fewshot,
        fewshot_seed=seed,
        data=asked_of(task, harness_task, results["samples"][task.name])
        | ({"chat_template_sha256": template_digest(lm.tokenizer)} if chat_template else {})
        | ({"overlong": overlong} if skip_overlong else {}),
        claimed=model.method.claimed_saving,
        stored=_stored(model),
    )
    return evaluation, samples


def _stored(model: AdaptiveModel) -> dict[str, list[int]] | None:
    """Bytes of the layers of a quantized model."""
    if model.backbone.quantized == "none":
        return None
    costs = model.backbone.costs
    found = {"attention": costs.attention_bytes, "kv": costs.attn_kv_bytes, "mlp": costs.mlp_bytes}
    return {name: sizes.tolist() for name, sizes in found.items()}


def _pool_counts(model: AdaptiveModel, lm: AdaptiveLM) -> None:
    """What several processes counted, each of its part, together; every process then has the whole."""
    group = processes.current_group()
    if group.is_single:
        return
    parts = group.gather((model.ledger.counts(), lm.time_s, lm.prompt_tokens, lm.generated_tokens))
    model.reset_ledger()
    for counts, *_ in parts:
        model.ledger.add(counts)
    lm.time_s, lm.prompt_tokens, lm.generated_tokens = (sum(column) for column in list(zip(*parts, strict=True))[1:])


def asked_of(task: Task, harness_task: HarnessTask, logged: list[dict[str, Any]]) -> dict[str, Any]:
    """What was asked, so that two records can be told apart or proved alike."""
    by_doc = {entry["doc_id"]: entry for entry in logged}
    ordered = [by_doc[doc] for doc in sorted(by_doc)]
    splits = harness_task.dataset.values() if isinstance(harness_task.dataset, dict) else ()
    metadata = harness_task.config.metadata or {}
    return {
        "source": task.source,
        "revision": next(filter(None, map(revision, splits)), None),
        "documents_sha256": _digest(entry["doc_hash"] for entry in ordered),
        "gold_sha256": _digest(entry["target_hash"] for entry in ordered),
        "prompts_sha256": _digest(entry["prompt_hash"] for entry in ordered),
        "task_version": metadata.get("version"),
        "signatures": metadata.get("signatures"),
        **_settings(ordered),
    }


def _settings(logged: list[dict[str, Any]]) -> dict[str, str]:
    """Of texts that were asked for, a digest of how they are to be written: up to which strings, and how long."""
    written = [[one[-1] for one in entry["arguments"] if isinstance(one[-1], dict)] for entry in logged]
    if not any(written):
        return {}
    return {"settings_sha256": _digest(json.dumps(one, sort_keys=True) for one in written)}


def _digest(hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def samples_of(logged: list[dict[str, Any]], task: Task) -> list[Sample]:
    """One sample per document; lm-eval logs one per document and filter."""
    by_doc: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in logged:
        by_doc[entry["doc_id"]].append(entry)
    samples = []
    for doc, entries in sorted(by_doc.items()):
        output = _output([response[0] for response in entries[0]["resps"]])
        written = isinstance(output, str)
        arguments = entries[0]["arguments"]
        scores = {
            f"{metric},{entry['filter']}": float(entry[metric])
            for entry in entries
            for metric in entry["metrics"]
            if isinstance(entry[metric], Real)
        }
        samples.append(
            Sample(
                doc=doc,
                target=entries[0]["target"],
                output=output,
                answers={entry["filter"]: str(entry["filtered_resps"][0]) for entry in entries} if written else {},
                scores=scores,
                correct=scores.get(task.metrics[0]),
                prompt=str(arguments[0][0]),
                choices=tuple(str(one[1]) for one in arguments) if len(arguments) > 1 else (),
            )
        )
    return samples


def _output(responses: list[Any]) -> str | int | float:
    """Text written, index of the likeliest choice, or the one log-likelihood asked for."""
    first = responses[0]
    if isinstance(first, str):
        return first
    scores = [response[0] if isinstance(response, tuple) else response for response in responses]
    return scores.index(max(scores)) if len(scores) > 1 else float(scores[0])
