"""The table of `list methods --model`: what each method adds to that model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adaptive_bench import registry
from adaptive_bench.errors import UsageError
from adaptive_bench.spec import MethodSpec, parse_specs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def overhead_rows(model_name: str, specs: str | None) -> list[dict[str, Any]]:
    """One row per method spec, measured on the model.

    Args:
        model_name: As for `run --model`.
        specs: Comma list of specs; every registered method if `None`.
    """
    from adaptive_bench.runs.planning.backbones import find_backbone

    chosen = parse_specs(specs) if specs else [MethodSpec(name) for name in registry.names("methods")]
    backbone = find_backbone(model_name).load_model().eval()
    return [_row(backbone, spec, named=specs is not None) for spec in chosen]


# What is measured, as a table calls it; shares are of the model's parameters and of its dense products.
_TITLES = {
    "parameters": "parameters",
    "parameters_share": "of the model",
    "parameter_bytes": "bytes",
    "decision_macs_per_token": "decision MACs per token",
    "decision_macs_share": "of dense MACs",
    "adapter_macs_per_token": "adapter MACs per token",
}


def overhead_texts(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The same rows for a table; of a method that does not fit the model, why."""
    return [
        {"method": str(row["method"])}
        | (
            {_TITLES["parameters"]: str(row["problem"])}
            if row["problem"]
            else {title: _number(key, row[key]) for key, title in _TITLES.items()}
        )
        for row in rows
    ]


def _number(key: str, value: float) -> str:
    return f"{value:.2%}" if key.endswith("_share") else f"{value:,.0f}"


def _row(backbone: PreTrainedModel, spec: MethodSpec, *, named: bool) -> dict[str, Any]:
    from adaptive_bench.model import AdaptiveModel
    from adaptive_bench.model.efficiency import measure_overhead

    try:
        found = measure_overhead(AdaptiveModel.build(backbone, spec))
    except UsageError as error:
        if named:
            raise
        return {
            "method": str(spec),
            "parameters": None,
            "parameters_share": None,
            "parameter_bytes": None,
            "decision_macs_per_token": None,
            "decision_macs_share": None,
            "adapter_macs_per_token": None,
            "problem": f"not on this model: {error}",
        }
    return {
        "method": str(spec),
        "parameters": found.parameters,
        "parameters_share": found.parameters / found.backbone_parameters,
        "parameter_bytes": found.parameter_bytes,
        "decision_macs_per_token": found.decision_macs,
        "decision_macs_share": found.decision_macs / found.dense_macs,
        "adapter_macs_per_token": found.adapter_macs,
        "problem": None,
    }
