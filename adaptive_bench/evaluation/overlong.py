"""Leaves out documents that are too long for a model's context, on request, and counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task as HarnessTask

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.drawn import ask_only


def leave_out(harness: HarnessTask, fits: Callable[[Instance], bool]) -> list[int]:
    """Make a task leave out documents with a request that does not fit. The other documents keep the worked examples
    that they would have otherwise.

    Returns:
        Numbers of the documents left out; the list is filled once the task has built its requests.
    """
    left: list[int] = []
    build = harness.build_all_requests

    def built(**how: Any) -> None:
        build(**how)
        left[:] = sorted({int(request.doc_id or 0) for request in harness.instances if not fits(request)})
        kept = [request for request in harness.instances if request.doc_id not in left]
        if not kept:
            raise UsageError(
                f"Documents longer than the model's context are left out, but of {harness.config.task!r} all "
                f"{len(left)} are. Lower --num-fewshot or choose a model with a longer context."
            )
        harness._instances = kept
        ask_only(harness, list(dict.fromkeys(int(request.doc_id or 0) for request in kept)))

    harness.build_all_requests = built
    return left
