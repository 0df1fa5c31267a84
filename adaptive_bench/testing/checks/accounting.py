"""The ledger counts what was executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from adaptive_bench.engine.engine_call import Executor
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.testing.check import Facts, check
from adaptive_bench.testing.checks.comparison import demand, generated_tokens
from adaptive_bench.testing.flops import ExecutedFlops
from adaptive_bench.testing.subject import Subject

ROTARY_SHARE = 2e-4  # the counter sees the rotary tables' product, which is no branch's work


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
                run()  # at the first use of a shape the forms of its products are timed: no work of the model
            model.reset_ledger()
            with torch.no_grad(), _ElementCount() as elements, ExecutedFlops() as counted:
                run()
            booked, executed = 2 * model.ledger.total_macs(), counted.total + elements.flops
            demand(
                abs(booked - executed) <= ROTARY_SHARE * executed,
                f"The ledger must hold every FLOP, but {name} at dial {dial:g} ({executor}) executed {executed} and "
                f"{booked:.0f} are booked. Compute with nn.Linear modules of the method (they are metered) and "
                "view.probe() and view.cosine(), not with raw matrix products or torch's own cosine.",
            )
    return {"ledger": True}


class _ElementCount(TorchFunctionMode):
    """Counts what PyTorch's counter takes for nothing: cosines, each two norms and a product, and states scaled by
    `SiteView.rescaled`.
    """

    flops = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is torch.cosine_similarity:
            self.flops += 2 * 3 * int(torch.broadcast_tensors(*args[:2])[0].numel())
        elif function in (torch.multiply, torch.pairwise_distance):
            self.flops += 2 * int(args[0].numel())
        return function(*args, **(kwargs or {}))


@contextmanager
def eager_attention(model: AdaptiveModel) -> Iterator[None]:
    """Attention the counter sees: fused attention on a CPU it takes for nothing."""
    before = model.backbone.config._attn_implementation
    model.backbone_model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.backbone_model.set_attn_implementation(before)
