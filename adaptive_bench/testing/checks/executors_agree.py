"""Checks that both executors and the cache give the same results, and that the ledger counts what was executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.engine.engine_call import Executor
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.checking import (
    TOLERANCE,
    Facts,
    NotApplicable,
    check,
    demand,
    difference,
    generated_tokens,
    logits_of,
)
from adaptive_bench.testing.subject import Subject

SAVINGS = ("tokens", "core", "net")


@check("packed", needs=("determinism",), rounding=True)
def packed(subject: Subject) -> Facts:
    """The masked and the packed executor agree at every dial: logits, generations and savings, padded and not."""
    model = subject.model()
    texts = subject.text(14, 8, 3, prompt=3), subject.text(12, 12, 12, seed=1, prompt=4)
    prompts = subject.text(9, 5, 9, seed=2)
    for dial in subject.all_dials:
        model.dial = dial
        results = []
        for model.executor in ("masked", "packed"):
            model.reset_ledger()
            logits = [logits_of(model, text) for text in texts]
            tokens = generated_tokens(model, prompts)
            saved = model.compute_report()["saved"]
            results.append((logits, tokens, {axis: saved[axis] for axis in SAVINGS}))
        masked_run, packed_run = results
        worst = max(difference(one, other) for one, other in zip(masked_run[0], packed_run[0], strict=True))
        demand(
            worst <= TOLERANCE and masked_run[1] == packed_run[1],
            f"Both executors must agree to {TOLERANCE:g}, but at dial {dial:g} logits differ by {worst:.2g} and "
            f"generations are {'equal' if masked_run[1] == packed_run[1] else 'different'}. A decision may depend on "
            "view.hidden, view.normed, positions and text of real tokens, on nothing that differs between executors.",
        )
        demand(
            masked_run[2] == packed_run[2],
            f"Both executors must report the same savings, but at dial {dial:g} masked says {masked_run[2]} and packed "
            f"{packed_run[2]}. Let decide() compute the same in both.",
        )
    return {}


@check("cached", needs=("determinism", "batching", "causality"), rounding=True)
@torch.no_grad()
def cached(subject: Subject) -> Facts:
    """A continuation fed to the cache token by token or in chunks gives the logits of one call over the whole text."""
    if subject.declared_class != "C0":
        raise NotApplicable(
            f"decisions of class {subject.declared_class} look at a whole call, so a cache changes them",
            kv_cache="changes decisions",
        )
    model, prompt = subject.model(), 6
    text = subject.text(15, 15, prompt=prompt)
    # The second row is padded on the left by two tokens.
    text.attention_mask[1, :2] = 0
    end = text.input_ids.shape[1]
    for dial in subject.all_dials:
        model.dial = dial
        for model.executor, cuts in (
            # Token by token; then one token and two chunks.
            ("packed", range(prompt, end + 1)),
            ("masked", (prompt, prompt + 1, end - 4, end)),
        ):
            first = text.prefix(prompt)
            output = model(first.input_ids, first.attention_mask, use_cache=True)
            parts = [output.logits]
            for start, stop in pairwise(cuts):
                output = model(text.input_ids[:, start:stop], past_key_values=output.past_key_values, use_cache=True)
                parts.append(output.logits)
            # Both [N, V], the real tokens row after row.
            worst = difference(torch.cat(parts, dim=1)[text.valid], logits_of(model, text))
            demand(
                worst <= TOLERANCE,
                f"A cache must change nothing, but at dial {dial:g} ({model.executor}) logits differ by {worst:.2g}. "
                "Decide by view.call.continuation instead of phase or call length, and keep what a request must "
                "remember in view.call.session.state.",
            )
    return {"kv_cache": "exact"}


ROTARY_SHARE = 2e-4  # the counter also sees the product of the rotary tables, which belongs to no branch


@check("ledger", needs=("determinism",))
def ledger(subject: Subject) -> Facts:
    """The ledger's multiply-accumulates are the FLOPs that PyTorch's counter sees, in scoring and in generation."""
    model, some = subject.model(), torch.tensor([2, 9], device=subject.device)
    left, right, prompts = subject.text(14, 8, 3), subject.text(14, 8, 3, side="right"), subject.text(9, 5, 9)
    nothing, most = subject.all_dials[0], subject.all_dials[-1]
    runs: list[tuple[str, Executor, float, Callable[[], object]]] = [
        ("scoring", "packed", nothing, lambda: model(**left.arguments)),
        ("scoring", "masked", most, lambda: model(**left.arguments)),
        ("scoring some positions", "packed", most, lambda: model(**right.arguments, logits_to_keep=some)),
        ("generating", "packed", most, lambda: generated_tokens(model, prompts)),
    ]
    with eager_attention(model):
        for name, executor, dial, run in runs:
            model.dial, model.executor = dial, executor
            with torch.no_grad():
                run()  # the first use of a shape times several kernels, which is not work of the model
            model.reset_ledger()
            with torch.no_grad(), _ElementCount() as elements, FlopCounterMode(display=False) as counted:
                run()
            booked, executed = 2 * model.ledger.total_macs(), counted.get_total_flops() + elements.flops
            demand(
                abs(booked - executed) <= ROTARY_SHARE * executed,
                f"The ledger must hold every FLOP, but {name} at dial {dial:g} ({executor}) executed {executed} and "
                f"{booked:.0f} are booked. Compute with nn.Linear modules of the method (they are metered) and "
                "view.probe() and view.cosine(), not with raw matrix products or torch's own cosine.",
            )
    return {"ledger": True}


class _ElementCount(TorchFunctionMode):
    """Counts FLOPs that PyTorch's counter misses: cosines (two norms and a product each), the norms of
    `SiteView.change`, and states scaled by `SiteView.rescaled`.
    """

    flops = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is torch.cosine_similarity:
            # Two norms and a product, each 2 FLOPs per element.
            self.flops += 2 * 3 * int(torch.broadcast_tensors(*args[:2])[0].numel())
        elif function in (torch.multiply, torch.pairwise_distance):
            self.flops += 2 * int(args[0].numel())
        return function(*args, **(kwargs or {}))


@contextmanager
def eager_attention(model: AdaptiveModel) -> Iterator[None]:
    """Switches to eager attention, because PyTorch's counter misses fused attention on a CPU."""
    before = model.backbone.config._attn_implementation
    model.backbone_model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.backbone_model.set_attn_implementation(before)
