"""Checks whether methods do on a device what they do on the CPU: decisions, logits and generations of tiny models.

In fp32 both must agree as two orders of the same sums do. In bf16 the yardstick is the CPU's own distance between bf16
and fp32.
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
from adaptive_bench.model.text_decisions import recorded_decisions
from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checking import TOLERANCE, generated_tokens
from adaptive_bench.testing.subject import Subject, Text
from adaptive_bench.testing.suite import Suite

FLIPPED = 0.005  # share of decisions that rounding may flip at a threshold
ROUNDINGS = 1.5  # two independent roundings differ by sqrt(2) times as much as one differs from the truth


@dataclass(frozen=True)
class Observed:
    """What a model did at some dial values, as fp32 tensors on the CPU.

    Attributes:
        logits: [N, V] of the real tokens at every dial value.
        kept: Which tokens executed at every site that decided, flat.
        tokens: Generations at every dial value.
    """

    logits: Tensor
    kept: Tensor
    tokens: list[list[list[int]]]


@dataclass(frozen=True)
class Distance:
    """The differences between two observations.

    Attributes:
        median, worst: Median and maximum over tokens of the largest absolute difference of a logit.
        flipped: Share of decisions that differ.
        same_tokens: Whether generations are equal.
    """

    median: float
    worst: float
    flipped: float
    same_tokens: bool

    @classmethod
    def of(cls, one: Observed, other: Observed) -> Distance:
        """The distance between two observations; infinite if a value is not a number."""
        apart = (one.logits - other.logits).abs().nan_to_num(nan=torch.inf).amax(dim=-1)
        same_sites = one.kept.shape == other.kept.shape
        flipped = float((one.kept != other.kept).float().mean()) if same_sites and one.kept.numel() else 0.0
        return cls(
            float(apart.median()), float(apart.max()), flipped if same_sites else 1.0, one.tokens == other.tokens
        )


def compare(spec: str, family: str, device: torch.device, change: Callable[[AdaptiveModel], Any] | None = None) -> dict:
    """Compares one method on one family on the device with the CPU.

    Args:
        spec: The method.
        family: The family.
        device: The device.
        change: Applied to the model on the device first.

    Returns:
        `fp32` and `bf16`, the distances of the device from the CPU; `yardstick`, the CPU's distance from bf16 to fp32;
        and `wrong`, the broken rules, empty if all hold.
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
    return {
        "spec": spec,
        "family": family,
        "fp32": vars(fp32),
        "bf16": vars(bf16),
        "yardstick": vars(yardstick),
        "wrong": [*_wrong_fp32(fp32), *_wrong_bf16(bf16, yardstick)],
    }


def _wrong_fp32(found: Distance) -> list[str]:
    wrong = []
    if found.flipped > FLIPPED:
        wrong.append(f"fp32: {found.flipped:.1%} of the decisions differ")
    # A flipped decision moves the logits of its token and of later ones, so then only the median has to agree.
    apart = found.median if found.flipped else found.worst
    if not apart <= TOLERANCE:
        wrong.append(f"fp32: logits differ by {apart:.2g}")
    if not found.flipped and not found.same_tokens:
        wrong.append("fp32: generations differ")
    return wrong


def _wrong_bf16(found: Distance, yardstick: Distance) -> list[str]:
    wrong = []
    if not found.median <= ROUNDINGS * yardstick.median + TOLERANCE:
        wrong.append(f"bf16: logits differ by {found.median:.2g}, {yardstick.median:.2g} on the CPU itself")
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
        specs: The specs to check.
        family: The family to check them on.
        device: The device.
        until_s: Time after which no further spec is started, on the clock of `time.monotonic`.
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
