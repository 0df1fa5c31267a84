"""The table of `list methods --model`: what each method adds to that model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import MethodSpec, parse_specs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def overhead_rows(model_name: str, specs: str | None) -> list[dict[str, str]]:
    """One row per method spec, measured on the model.

    Args:
        model_name: As for `run --model`.
        specs: Comma list of specs; every registered method if `None`.
    """
    from adaptive_bench.runs.planning.backbones import find_backbone

    chosen = parse_specs(specs) if specs else [MethodSpec(name) for name in registry.names("methods")]
    backbone = find_backbone(model_name).load_model().eval()
    return [{"method": str(spec)} | _row(backbone, spec, named=specs is not None) for spec in chosen]


def _row(backbone: PreTrainedModel, spec: MethodSpec, *, named: bool) -> dict[str, str]:
    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.model.overhead import measure_overhead

    try:
        found = measure_overhead(AdaptiveModel.build(backbone, spec))
    except UsageError as error:
        if named:
            raise
        return {"parameters": f"not on this model: {error}"}
    return {
        "parameters": f"{found.parameters:,}",
        "of the model": f"{found.parameters / found.backbone_parameters:.2%}",
        "bytes": f"{found.parameter_bytes:,}",
        "decision MACs per token": f"{found.decision_macs:,.0f}",
        "of dense MACs": f"{found.decision_macs / found.dense_macs:.2%}",
        "adapter MACs per token": f"{found.adapter_macs:,.0f}",
    }
