"""Defines MMLU by the likeliest letter (all subjects, or STEM), and as a written answer in the paper's template."""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.data import Source
from adaptive_bench.task import Task

from ..template import generative, right_one, with_options

SOURCE = Source(
    "cais/mmlu",
    configuration="all",
    fields=("question", "subject", "choices", "answer"),
    form=lambda row: (with_options(row["question"], row["choices"]), right_one(row["choices"], row["answer"])),
)


def _scored(name: str, description: str) -> Task:
    return Task(
        name=name,
        description=description,
        kind="loglikelihood",
        folder=Path(__file__).parent,
        metrics=("acc,none",),
        chance=0.25,
        training=None,
        validation_split="validation",
        data_folders=SOURCE.folders,
        source=str(SOURCE),
        licence="MIT",
        mixed=True,
    )


MMLU = _scored("mmlu", "57 subjects by the likeliest letter; test split, subjects in turns")
MMLU_STEM = _scored("mmlu_stem", "The 19 STEM subjects of mmlu")
MMLU_GEN = generative(
    "mmlu_gen",
    description="mmlu written in the paper's template, zero-shot",
    folder=Path(__file__).parent,
    chance=0.25,
    training=None,
    validation_split="validation",
    data_folders=SOURCE.folders,
    source=str(SOURCE),
    licence="MIT",
    mixed=True,
)
