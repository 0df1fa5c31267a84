"""Registers the paper's log-likelihood tasks that lm-eval ships, with its YAML files as they are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adaptive_bench.data import Source
from adaptive_bench.task import Task


def _stock(name: str, source: Source, **fields: Any) -> Task:
    spec = find_spec("lm_eval")
    assert spec is not None and spec.origin is not None  # lm-eval is a dependency
    return Task(
        name=name,
        kind="loglikelihood",
        folder=Path(spec.origin).parent / "tasks" / name,
        training=None,
        data_folders=source.folders,
        source=str(source),
        **fields,
    )


HELLASWAG = _stock(
    "hellaswag",
    Source("Rowan/hellaswag"),
    description="Which of four endings follows; validation split",
    metrics=("acc,none", "acc_norm,none"),
    chance=0.25,
    validation_split="train",
    licence="MIT",
)
PIQA = _stock(
    "piqa",
    Source("baber/piqa"),
    description="Which of two ways works; validation split",
    metrics=("acc,none", "acc_norm,none"),
    chance=0.5,
    validation_split="train",
    licence="AFL-3.0",
)
OPENBOOKQA = _stock(
    "openbookqa",
    Source("allenai/openbookqa", configuration="main"),
    description="Elementary science, four options; test split",
    metrics=("acc,none", "acc_norm,none"),
    chance=0.25,
    validation_split="validation",
    licence="Apache-2.0",
)
WINOGRANDE = _stock(
    "winogrande",
    Source("allenai/winogrande", configuration="winogrande_xl"),
    description="Which of two nouns a blank stands for; validation split",
    metrics=("acc,none",),
    chance=0.5,
    validation_split="train",
    licence="CC-BY",
)
LAMBADA = _stock(
    "lambada",
    Source("EleutherAI/lambada_openai", configuration="default"),
    harness_name="lambada_openai",
    description="The last word of a passage: accuracy and perplexity; lm-eval's lambada_openai",
    metrics=("acc,none", "perplexity,none"),
    chance=0.0,
    licence="CC-BY-4.0; OpenAI's variant MIT",
)
