"""Learn then Test: the dial value that saves most and is certified to write nearly what the model writes at full depth.

A threshold chosen on some documents may look safe by luck. Here every dial value is a hypothesis, "the texts differ too
much from those at full depth", that is rejected by a p-value which holds for any distribution of documents. They are
tested in a fixed order, from the value that saves least, up to the first that is not rejected: then, with probability
1 - error_rate over the documents drawn, the mean dissimilarity at the certified value is at most the tolerance.

Papers: "Learn then Test", https://arxiv.org/abs/2110.01052 (Hoeffding-Bentkus p-values, fixed-sequence testing);
"Confident Adaptive Language Modeling", https://arxiv.org/abs/2207.07061, section 4, which chooses CALM's threshold so
(textual consistency). It serves any dial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import binom

from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel
from adaptive_bench.model.generation import generate_queue

Dissimilarity = Callable[[Sequence[int], Sequence[int]], float]


@dataclass(frozen=True)
class Tested:
    """A dial value that was tested: mean dissimilarity of the documents, and its p-value."""

    dial: float
    dissimilarity: float
    p: float


@dataclass(frozen=True)
class Certified:
    """What the test allows.

    Attributes:
        dial: The last value that was rejected; where none was, the dial's `skip_nothing`.
        tested: In order, up to the first that failed.
    """

    dial: float
    tested: tuple[Tested, ...]


def certified_dial(
    model: ForwardModel,
    prompts: Sequence[Sequence[int]],
    dials: Sequence[float],
    *,
    tolerance: float,
    error_rate: float,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    dissimilarity: Dissimilarity | None = None,
    rows: int = 16,
) -> Certified:
    """Test dial values on prompts that nothing was trained on, nor will be tested on. Leaves the dial as it was.

    Args:
        model: In `eval()` mode; with thresholds, calibrated for these dials.
        prompts: Token ids of independent documents; n of them certify no tolerance below about -ln(error_rate) / n.
        dials: Tested in this order: from the value that saves least. For CALM 1, 0.95, .. 0.
        tolerance: Largest mean dissimilarity, in (0, 1) (the paper's delta).
        error_rate: Largest probability of certifying what is not so, in (0, 1) (the paper's epsilon).
        max_new_tokens, eos_token_ids, rows: See `generate_queue`.
        dissimilarity: Of a text and the one at full depth, in [0, 1]; by default 0 where they are equal and else 1.

    Raises:
        UsageError: No prompts, or a share that is none.
    """
    if not prompts:
        raise UsageError("A dial value is certified on prompts, got none. Give held-out documents.")
    for name, share in (("tolerance", tolerance), ("error_rate", error_rate)):
        if not 0.0 < share < 1.0:
            raise UsageError(f"{name} is a share between 0 and 1, got {share!r}.")
    compare = dissimilarity or (lambda text, full: float(list(text) != list(full)))
    before = model.dial

    def generated_tokens(dial: float) -> list[list[int]]:
        model.dial = dial
        return generate_queue(model, prompts, rows=rows, max_new_tokens=max_new_tokens, eos_token_ids=eos_token_ids)

    certified, tested = model.method.dial.skip_nothing, []
    try:
        full = generated_tokens(certified)
        for dial in dials:
            mean = fmean(compare(*pair) for pair in zip(generated_tokens(dial), full, strict=True))
            tested.append(Tested(dial, mean, hoeffding_bentkus(mean, len(prompts), tolerance)))
            if tested[-1].p > error_rate:
                break
            certified = dial
    finally:
        model.dial = before
    return Certified(certified, tuple(tested))


def hoeffding_bentkus(mean: float, count: int, bound: float) -> float:
    """p-value of "the expectation is above the bound", from the mean of independent values in [0, 1].

    The smaller one of Hoeffding's exp(-n kl(min(mean, bound), bound)) and Bentkus' e P(Bin(n, bound) <= ceil(n mean)).
    """
    low = min(mean, bound)
    divergence = (1 - low) * math.log((1 - low) / (1 - bound)) + (low * math.log(low / bound) if low else 0.0)
    bentkus = math.e * float(binom.cdf(math.ceil(round(count * mean, 9)), count, bound))
    return min(1.0, math.exp(-count * divergence), bentkus)
