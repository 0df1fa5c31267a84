"""Evaluates an adaptive model at its current dial on one lm-eval task."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed
from lm_eval import evaluator
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench import processes
from adaptive_bench.data.sources import revision
from adaptive_bench.errors import PluginFault
from adaptive_bench.evaluation.documents import ask_only, drawn, leave_out
from adaptive_bench.evaluation.finite import check_metrics
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.hardware import OutOfMemory, find_batch_size
from adaptive_bench.model.tokenization import template_digest
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.store.evaluation import Evaluation, Sample
from adaptive_bench.task import DocumentSplit, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


# The default seeds of `lm_eval.simple_evaluate`: for NumPy, torch and the draw of worked examples, and for Python's
# `random`. They do not depend on the training's seed, so that every training is asked the same questions.
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
    """Score the model on a task at its current dial, and measure what it saved; with a sample for each document.

    The model's ledger is reset first. When memory runs out, the batch is halved and the task starts again, so that all
    documents are evaluated at one batch size and nothing is counted twice.

    Several processes share an evaluation (`processes.Processes.sharing`) if all of them call this with the same
    arguments. They divide the batches among them, and all get the same result.

    Args:
        task_name: A task of this package, of a plugin, or of lm-eval.
        data_dir: Folder with local data files; `None` reads the hub.
        limit: Number of documents to evaluate, drawn with one seed for every model (see `drawn`).
        documents: The documents to evaluate, by their numbers in the split, ascending.
        num_fewshot: Worked examples before each question; `None` for the task's own number.
        seed: Seed for worked examples and for tasks that sample. By default lm-eval's own worked examples are used.
        split: Test documents, or validation documents for making choices.
        chat_template: Put prompts into the tokenizer's chat template, with each worked example as a separate exchange,
            as lm-eval does by default with `--apply_chat_template`.
        prefix: Text before every prompt, to ask the same question in another way.
        temperature: Sample generated text at this temperature; by default as the task says.
        stop_strings, max_new_tokens: End answers by these instead of the task's own settings; as lm-eval's
            `gen_kwargs`.
        system_prompt: Text before every prompt, or the system's turn of a chat; lm-eval's `system_instruction`.
        enable_thinking: Passed to the chat template if it is not `None`.
        skip_overlong: Leave out documents that are too long for the context; their numbers are in `data["overlong"]`.

    Raises:
        UsageError: Unknown task, no validation documents, or a prompt that does not fit into the context.
        EnvironmentProblem: The data cannot be read, or memory does not suffice for one sequence.
        PluginFault: lm-eval gives no such headline metric, or a task gives values beyond a metric's bounds.
    """
    reporter = progress or SilentReporter()
    task = find_task(task_name)

    def ask(rows: int) -> tuple[Evaluation, list[Sample]]:
        model.reset_ledger()
        # A new copy for each attempt, since `leave_out` and lm-eval change it.
        loaded = asked_task(task, data_dir, num_fewshot, split, limit, documents, seed)
        if prefix:
            loaded.config.description = prefix + (loaded.config.description or "")
        set_writing(loaded, temperature, stop_strings, max_new_tokens)
        dial = model.method.dial
        at = f", {dial.name} {model.dial:.3g}" if dial.minimum < dial.maximum else ""
        lm = AdaptiveLM(
            model,
            tokenizer,
            batch_size=rows,
            seed=seed,
            enable_thinking=enable_thinking,
            label=f"{task.name}, {model.spec}{at}",
            reporter=reporter,
        )
        overlong = leave_out(loaded, lm.fits) if skip_overlong else None
        with quiet():
            results = evaluator.evaluate(
                lm,
                # What lm-eval's own loader would give: the task alone, in no group.
                {"tasks": {task.name: loaded}, "groups": {}, "group_map": {}},
                # No standard errors by bootstrap: tables compute intervals from the documents' scores.
                bootstrap_iters=0,
                system_instruction=system_prompt,
                apply_chat_template=chat_template,
                fewshot_as_multiturn=chat_template,
            )
        _pool_counts(model, lm)
        asked: dict[str, Any] = {"chat_template_sha256": template_digest(tokenizer)} if chat_template else {}
        return _measured(task, loaded, lm, results, asked if overlong is None else asked | {"overlong": overlong})

    was_training = model.training
    model.eval()
    try:
        # Of several processes all get an `OutOfMemory`, and begin again together; other errors only one of them meets.
        return find_batch_size(task_name, ask, batch_size, reporter, lambda error: isinstance(error, OutOfMemory))[0]
    finally:
        model.train(was_training)


def asked_task(
    task: Task,
    data_dir: Path | None,
    num_fewshot: int | None,
    split: DocumentSplit,
    limit: int | None = None,
    documents: Sequence[int] | None = None,
    seed: int = FEWSHOT_SEED,
) -> HarnessTask:
    """The task with the documents and worked examples that are asked; see `evaluate`."""
    set_seed(seed)  # some tasks shuffle with a global generator when they are loaded or evaluated
    random.seed(PYTHON_SEED)
    loaded = load_task(task, data_dir, num_fewshot, split)
    if documents is not None or limit is not None:
        ask_only(loaded, drawn(task, len(loaded.eval_docs), limit) if documents is None else documents)
    loaded.set_fewshot_seed(seed)
    return loaded


def set_writing(
    loaded: HarnessTask, temperature: float | None, stop_strings: Sequence[str] | None, max_new_tokens: int | None
) -> None:
    """Replace a generative task's settings for generation by those that are given; see `evaluate`."""
    asked: dict[str, Any] = {} if temperature is None else {"do_sample": True, "temperature": temperature}
    asked |= {"until": list(stop_strings)} if stop_strings else {}
    asked |= {"max_gen_toks": max_new_tokens} if max_new_tokens else {}
    if asked and loaded.OUTPUT_TYPE == "generate_until":
        loaded.config.generation_kwargs = {**(loaded.config.generation_kwargs or {}), **asked}


def _measured(
    task: Task, loaded: HarnessTask, lm: AdaptiveLM, results: dict[str, Any], asked: dict[str, Any]
) -> tuple[Evaluation, list[Sample]]:
    """The evaluation and its samples, from what lm-eval gives; `asked` is what `Evaluation.data` says beyond
    `asked_of`.
    """
    model, logged = lm.model, results["samples"][task.name]
    scores = {
        key: float(value)
        for key, value in results["results"][task.name].items()
        # lm-eval's keys are `metric,filter`; beside them are standard errors and the task's alias.
        if "," in key and "_stderr" not in key and isinstance(value, Real)
    }
    if task.metrics[0] not in scores:
        raise PluginFault(
            f"The headline metric of the task {task.name!r} is {task.metrics[0]!r}, but lm-eval gave {sorted(scores)}. "
            f"Correct the task's metrics."
        )
    check_metrics(scores, f"the task {task.name!r}")
    samples = samples_of(logged, task)
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
        batch_size=lm.batch_size,
        num_fewshot=loaded.config.num_fewshot,
        fewshot_seed=lm.seed,
        data=asked_of(task, loaded, logged) | asked,
        claimed=model.method.claimed_saving,
        stored=_stored(model),
    )
    return evaluation, samples


def _stored(model: AdaptiveModel) -> dict[str, list[int]] | None:
    """Bytes of weights per layer of a quantized model; `None` if the model is not quantized."""
    if model.backbone.quantized == "none":
        return None
    costs = model.backbone.costs
    found = {"attention": costs.attention_bytes, "kv": costs.attn_kv_bytes, "mlp": costs.mlp_bytes}
    return {name: sizes.tolist() for name, sizes in found.items()}


def _pool_counts(model: AdaptiveModel, lm: AdaptiveLM) -> None:
    """Add up the counts of several processes, so that every process has those of the whole evaluation."""
    group = processes.current_group()
    if group.is_single:
        return
    # Reset before adding up, since this process's own counts are among the parts.
    parts = group.gather((model.ledger.counts(), lm.time_s, lm.prompt_tokens, lm.generated_tokens))
    model.reset_ledger()
    for counts, *_ in parts:
        model.ledger.add(counts)
    lm.time_s, lm.prompt_tokens, lm.generated_tokens = (sum(column) for column in list(zip(*parts, strict=True))[1:])


def asked_of(task: Task, harness_task: HarnessTask, logged: list[dict[str, Any]]) -> dict[str, Any]:
    """Digests and versions of what was asked, which show whether two records asked the same."""
    # One entry for each document: all filters of a document were asked the same.
    by_doc = {entry["doc_id"]: entry for entry in logged}
    ordered = [by_doc[doc] for doc in sorted(by_doc)]
    splits = harness_task.dataset.values() if isinstance(harness_task.dataset, dict) else ()
    metadata = harness_task.config.metadata or {}
    # Generation settings (stop strings, length), if the task generates text.
    written = [[one[-1] for one in entry["arguments"] if isinstance(one[-1], dict)] for entry in ordered]
    return {
        "source": task.source,
        "revision": next(filter(None, map(revision, splits)), None),
        "documents_sha256": _digest(entry["doc_hash"] for entry in ordered),
        "gold_sha256": _digest(entry["target_hash"] for entry in ordered),
        "prompts_sha256": _digest(entry["prompt_hash"] for entry in ordered),
        "task_version": metadata.get("version"),
        "signatures": metadata.get("signatures"),
        **({"settings_sha256": _digest(json.dumps(one, sort_keys=True) for one in written)} if any(written) else {}),
    }


def _digest(hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def samples_of(logged: list[dict[str, Any]], task: Task) -> list[Sample]:
    """One sample per document; lm-eval logs one per document and filter."""
    by_doc: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in logged:
        by_doc[entry["doc_id"]].append(entry)
    samples = []
    for doc, entries in sorted(by_doc.items()):
        # A document has one request, or one for each choice; each has a list of responses, one per repeat.
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
    """The generated text, the index of the likeliest choice, or the only log-likelihood."""
    first = responses[0]
    if isinstance(first, str):
        return first
    scores = [response[0] if isinstance(response, tuple) else response for response in responses]
    return scores.index(max(scores)) if len(scores) > 1 else float(scores[0])
