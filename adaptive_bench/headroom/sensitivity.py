"""What every site is worth: how far predictions move when a share of all tokens, or every token, skips it alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench.backbone import Site
from adaptive_bench.headroom.divergence import FullModel
from adaptive_bench.method import SiteView
from adaptive_bench.model.prescribed import prescribed_model
from adaptive_bench.model.site_costs import SHARE
from adaptive_bench.progress import RunningTask


def site_sensitivity(
    backbone_model: PreTrainedModel, full: FullModel, *, seed: int, task: RunningTask | None = None
) -> list[dict[str, Any]]:
    """One row for each of the 2 L sites: mean KL in nats from the full model, K,V of skipped tokens recomputed.

    Which tokens skip is drawn once and is the same at every site.

    Returns:
        `layer`, `branch`, and for `share` and `all` of the tokens skipping `everywhere` and on `answers`.
    """
    model = prescribed_model(backbone_model, unit="branch")
    draws = _draws(full, seed)
    rows = []
    for number in range(2 * model.backbone.num_layers):
        site = Site(number // 2, "mlp" if number % 2 else "attention")
        row: dict[str, Any] = {"layer": site.layer, "branch": site.branch}
        for name, share in (("share", SHARE), ("all", 1.0)):
            keeps = [draw >= share for draw in draws]

            def prepare(batch: int, site: Site = site, keeps: list[Tensor] = keeps) -> None:
                def rule(view: SiteView) -> Tensor | None:
                    return keeps[batch] if view.site == site else None

                model.method.rule = rule

            row[name] = full.divergence(model, prepare)._asdict()
        rows.append(row)
        if task is not None:
            task.advance()
    return rows


def dominance(rows: Sequence[dict[str, Any]], name: str = "share", where: str = "everywhere") -> float | None:
    """The largest site's KL over the median site's; `None` where the median is 0."""
    values = [row[name][where] for row in rows]
    middle = median(values)
    return max(values) / middle if middle > 0 else None


def _draws(full: FullModel, seed: int) -> list[Tensor]:
    """Uniform numbers [B, S] for each batch."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch.input_ids.shape, generator=generator).to(batch.input_ids.device) for batch in full.batches]
