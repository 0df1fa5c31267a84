"""Whether methods do on a device what they do on the CPU: decisions, logits and generations of tiny models.

In fp32 both must agree as two orders of the same sums do. In bf16 the CPU itself says how far two roundings lie apart:
its own distance between bf16 and fp32 is the yardstick.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.static_decode import StaticSteps, why_not_static
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.backbones import Text
from adaptive_bench.testing.checks.comparison import NEW_TOKENS, TOLERANCE, generated_tokens
from adaptive_bench.testing.subject import Subject
from adaptive_bench.testing.suite import Suite

FLIPPED = 0.005  # share of decisions at a threshold that rounding may turn over
ROUNDINGS = 1.5  # two independent roundings lie sqrt(2) times as far apart as one from the truth


@dataclass(frozen=True)
class Observed:
    """What a model did at some dial values; on the CPU, in fp32.

    Attributes:
        logits: [N, V] of the real tokens at every dial.
        kept: Who executed, at every site that decided, flat.
        tokens: Generations.
    """

    logits: Tensor
    kept: Tensor
    tokens: list[list[list[int]]]


@dataclass(frozen=True)
class Distance:
    """How far two observations lie apart.

    Attributes:
        median, worst: Over tokens, of the largest absolute difference of a logit.
        flipped: Share of decisions that differ.
    """

    median: float
    worst: float
    flipped: float
    same_tokens: bool

    @classmethod
    def of(cls, one: Observed, other: Observed) -> Distance:
        """Between two; infinite where something is not a number."""
        apart = (one.logits - other.logits).abs().nan_to_num(nan=torch.inf).amax(dim=-1)
        same_sites = one.kept.shape == other.kept.shape
        flipped = float((one.kept != other.kept).float().mean()) if same_sites and one.kept.numel() else 0.0
        return cls(
            float(apart.median()), float(apart.max()), flipped if same_sites else 1.0, one.tokens == other.tokens
        )


def compare(spec: str, family: str, device: torch.device, change: Callable[[AdaptiveModel], Any] | None = None) -> dict:
    """One method on one family: the device against the CPU.

    Args:
        change: Done to the model on the device first.

    Returns:
        `fp32` and `bf16` distances of the device from the CPU, `yardstick` the CPU's from bf16 to fp32, `recorded` the
        CUDA graphs that decoding took or why there are none, and `wrong`: what is beyond the rules, empty if nothing
        is.
    """
    subject = Subject(MethodSpec.parse(spec), family)
    model, dials = subject.model(), subject.all_dials
    texts = subject.text(14, 8, 11), subject.text(9, 5, 9, seed=2)
    there = copy.deepcopy(model).to(device)
    if change is not None:
        change(there)
    here_bf16, there_bf16 = copy.deepcopy(model).to(torch.bfloat16), copy.deepcopy(there).to(torch.bfloat16)
    here = _observe(model, dials, *texts)
    rounded = _observe(here_bf16, dials, *texts)
    yardstick = Distance.of(here, rounded)
    moved = tuple(text.to(device) for text in texts)
    fp32 = Distance.of(here, _observe(there, dials, *moved))
    bf16 = Distance.of(rounded, _observe(there_bf16, dials, *moved))
    recorded, unlike = _recorded(there, dials, moved[1])
    return {
        "spec": spec,
        "family": family,
        "recorded": recorded,
        "fp32": vars(fp32),
        "bf16": vars(bf16),
        "yardstick": vars(yardstick),
        "wrong": [*_wrong_fp32(fp32), *_wrong_bf16(bf16, yardstick), *unlike],
    }


def _recorded(model: AdaptiveModel, dials: Iterable[float], prompts: Text) -> tuple[int | str, list[str]]:
    """Graphs recorded at all dial values, or why there are none; and where recorded steps write something else."""
    if reason := why_not_static(model):
        return reason, []
    rows, longest = prompts.input_ids.shape
    steps = StaticSteps(model, rows=rows, capacity=longest + NEW_TOKENS, least_reach=8)
    unlike = []
    for model.dial in dials:
        if generated_tokens(model, prompts, steps=steps) != generated_tokens(model, prompts):
            unlike.append(f"fp32: recorded steps write other texts at {model.method.dial.name} {model.dial:g}")
    return len(steps.recorded) or steps.not_recorded or "no step came twice", unlike


def _wrong_fp32(found: Distance) -> list[str]:
    wrong = []
    if found.flipped > FLIPPED:
        wrong.append(f"fp32: {found.flipped:.1%} of the decisions differ")
    # A decision that was turned over moves the logits of its token and of later ones: then the others have to agree.
    apart = found.median if found.flipped else found.worst
    if not apart <= TOLERANCE:
        wrong.append(f"fp32: logits differ by {apart:.2g}")
    if not found.flipped and not found.same_tokens:
        wrong.append("fp32: generations differ")
    return wrong


def _wrong_bf16(found: Distance, yardstick: Distance) -> list[str]:
    wrong = []
    if not found.median <= ROUNDINGS * yardstick.median + TOLERANCE:
        wrong.append(f"bf16: logits differ by {found.median:.2g} where the CPU is {yardstick.median:.2g} off itself")
    if found.flipped > ROUNDINGS * yardstick.flipped + FLIPPED:
        wrong.append(f"bf16: {found.flipped:.1%} of the decisions differ, {yardstick.flipped:.1%} on the CPU itself")
    return wrong


@torch.no_grad()
def _observe(model: AdaptiveModel, dials: Iterable[float], text: Text, prompts: Text) -> Observed:
    logits, kept, tokens = [], [], []
    for model.dial in dials:
        with recorded_decisions(model.method) as decisions:
            logits.append(model(**text.arguments).logits[text.valid].float().cpu())
        kept += [decision.keep[text.valid].cpu() for _, decision in decisions if decision.keep is not None]
        tokens.append(generated_tokens(model, prompts))
    return Observed(torch.cat(logits), torch.cat(kept) if kept else torch.zeros(0, dtype=torch.bool), tokens)


def check_suite(specs: Iterable[str], family: str, device: torch.device, until_s: float) -> dict[str, Any]:
    """The conformance suite on a device, in fp32.

    Args:
        until_s: When no further spec is begun, on the clock of `time.monotonic`.
    """
    failures, done, left = [], [], []
    for spec in specs:
        if time.monotonic() > until_s:
            left.append(spec)
            continue
        results = Suite(MethodSpec.parse(spec), family, device=device).results()
        done.append(spec)
        failures += [
            {"spec": spec, "check": one.check, "message": one.message} for one in results if one.status == "failed"
        ]
    return {"family": family, "specs": done, "failures": failures, "left_out": left}
