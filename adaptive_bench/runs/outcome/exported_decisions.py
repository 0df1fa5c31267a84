"""The decisions of a trained model on whole texts, for other engines (`adaptive-bench export-decisions`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from adaptive_bench.backbone import Branch, Site
from adaptive_bench.errors import UsageError
from adaptive_bench.method import Decision, document_key
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.text_decisions import decide_on
from adaptive_bench.store.decision_files import DocumentDecisions


def check_exportable(model: AdaptiveModel) -> None:
    """Refuse a model whose decisions are no mask of a text.

    Raises:
        UsageError: Its tokens wait for later ones, or decisions depend on how a text is cut into calls.
    """
    method = model.method
    if method.semantics != "bench" and method.paper_class != "C0":
        raise UsageError(
            f"Decisions are exported of methods that decide from earlier text alone, got {model.spec}: what it decides "
            f"depends on the other tokens of a call. Export it without @{method.semantics}."
        )
    if model.method.kv_policy == "defer":
        raise UsageError(
            f"Decisions are exported as a mask of tokens and branches, got {model.spec}, whose KV policy 'defer' lets "
            f"tokens wait until a later one runs all layers: that is no mask. Export another method, or another policy."
        )


def sites_of(model: AdaptiveModel) -> list[Site]:
    """The columns of a mask in the order of execution: branches, or layers where the method decides on those."""
    branches: tuple[Branch, ...] = ("layer",) if model.method.unit == "layer" else ("attention", "mlp")
    return [Site(layer, branch) for layer in range(model.backbone.num_layers) for branch in branches]


def decisions_of(
    model: AdaptiveModel, task: str, documents: Iterable[tuple[int, list[int], list[int]]]
) -> tuple[list[DocumentDecisions], bool]:
    """Decisions on texts, each read in one pass with the answer as such: a causal method decides as if it wrote it.
    And whether masks and scales are all that the method does to its backbone.

    Args:
        model: In `eval()` mode, its dial set.
        task: Name of the documents' task: random draws hang on it.
        documents: Index, token ids of the prompt, and of the answer.
    """
    check_exportable(model)
    columns = {site: column for column, site in enumerate(sites_of(model))}
    found, complete = [], True
    for doc, prompt, answer in documents:
        key = torch.tensor([document_key(task, doc)], device=model.device) if model.draws else None
        decided = [(site, decision) for site, decision, _ in decide_on(model, prompt, answer, key)]
        keep, scale = _masks(decided, len(prompt) + len(answer), columns)
        found.append(DocumentDecisions(doc, prompt + answer, len(prompt), keep, scale))
        complete = complete and not any(_does_more(decision) for _, decision in decided)
    return found, complete


def _masks(
    decided: Sequence[tuple[Site, Decision]], length: int, columns: Mapping[Site, int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """[S, sites] who executes, and scales where they are one number a token; at a site that was not asked all do."""
    keep = np.ones((length, len(columns)), dtype=bool)
    scale = np.ones((length, len(columns)), dtype=np.float32)
    for site, decision in decided:
        if decision.keep is not None:
            keep[:, columns[site]] = decision.keep[0].cpu().numpy()
        if decision.scale is not None and not _does_more(decision):
            scale[:, columns[site]] = decision.scale[0, :, 0].float().cpu().numpy()
    return keep, None if (scale == 1).all() else scale


def _does_more(decision: Decision) -> bool:
    """Whether a decision is more than a mask and one number a token: that takes the method's own weights."""
    scaled = decision.scale is not None and decision.scale.shape[-1] > 1
    return scaled or decision.input_scale is not None or decision.otherwise is not None
