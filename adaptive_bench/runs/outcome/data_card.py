"""The data card of a run: what it was trained, calibrated and tested on, with terms, sizes and digests.

Everything measured in it comes from the records of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulate import tabulate

from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.training_text import training_tasks

_SPREAD = ("min", "median", "p95", "max")


def data_card(whole: Plan) -> str:
    """The card as a Markdown page."""
    config = whole.config
    where = "the Hugging Face hub" if config.data_dir is None else f"`{config.data_dir}`"
    parts = [
        "# Data card",
        f"Model `{config.model}`; methods {', '.join(f'`{spec}`' for spec in config.methods)}. Data read from {where}.",
        "## Trained and calibrated on",
        _table(_training_sources(whole)) if config.train.steps else "Nothing was trained.",
        *([_table(_sequences(whole))] if config.train.steps else []),
        "## Tested on",
        _table(_tested(whole)),
        "Digests are of the documents and of the prompts made of them, worked examples included, in their order. "
        "A data set gives no document to two of training, calibration and test. Where test documents stand in the "
        "training text all the same, a note under the table says how many.",
    ]
    return "\n\n".join(parts) + "\n"


def _training_sources(whole: Plan) -> Iterator[dict[str, str]]:
    for task in training_tasks(whole.config):
        text = task.text_source or task.description
        yield {"task": task.name, "text": text, "terms": task.licence or "see its source"}


def _sequences(whole: Plan) -> Iterator[dict[str, Any]]:
    """One line a seed: every method of a seed is trained on the same sequences."""
    seen: set[int] = set()
    for training in whole.trainings:
        about = training.record.read("data")
        if about is None or training.seed in seen:
            continue
        seen.add(training.seed)
        yield {
            "seed": training.seed,
            "sequences": about["sequences"],
            "different": about["examples"],
            "cut": about["truncated_examples"],
            "tokens": about["tokens"],
            "learned": about["loss_tokens"],
            "prompt tokens": _spread(about.get("prompt_tokens")),
            "completion tokens": _spread(about.get("completion_tokens")),
            "order sha256": about["order_sha256"][:16],
        }


def _tested(whole: Plan) -> Iterator[dict[str, Any]]:
    for name in whole.config.tasks:
        task = find_task(name)
        points = (
            point for sweep in whole.sweeps if sweep.task == task.name for point in (sweep.finished() or {}).values()
        )
        about = next(points, None)
        data = (about.data if about is not None else None) or {}
        yield {
            "task": task.name,
            "source": task.source or "generated",
            "terms": task.licence or "see its source",
            "revision": data.get("revision") or "",
            "documents": "" if about is None else about.docs,
            "shots": "" if about is None else about.num_fewshot,
            "documents sha256": str(data.get("documents_sha256", ""))[:16],
            "prompts sha256": str(data.get("prompts_sha256", ""))[:16],
            "scored by": ", ".join(f"{metric}: {text}" for metric, text in (data.get("signatures") or {}).items()),
        }


def _spread(lengths: dict[str, int] | None) -> str:
    return "" if lengths is None else " / ".join(str(lengths[name]) for name in _SPREAD)


def _table(rows: Iterator[dict[str, Any]]) -> str:
    return tabulate(list(rows), headers="keys", tablefmt="pipe", disable_numparse=True)
