"""Where a speculative text leaves the greedy one, and whether rounding explains it.

Verifying takes several tokens in one call where greedy decoding takes one, so sums are taken in another order and
logits differ by rounding. With r the largest such difference, two candidates whose logits lie within 2 r of each other
may change places: a near-tie. What lies further apart is a defect. r is measured on the very text, of the full model
and without any drafts: the largest difference of any logit at any place up to there, between token by token and all at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adaptive_bench.model import AdaptiveModel


@dataclass(frozen=True)
class Difference:
    """The first place at which two texts differ.

    Attributes:
        text: Number of the prompt, from 0.
        position: Of the new token, from 0.
        greedy, speculative: The two tokens; `None` where the text has ended.
        gap: Logit of the greedy one less that of the other, in one call of the full model; `None` where a text ended.
        bound: What rounding explains, 2 r; `None` likewise.
    """

    text: int
    position: int
    greedy: int | None
    speculative: int | None
    gap: float | None
    bound: float | None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.gap is not None and self.bound is not None and abs(self.gap) <= self.bound


def find_difference(
    model: AdaptiveModel, text: int, prompt: Sequence[int], greedy: Sequence[int], speculative: Sequence[int]
) -> Difference | None:
    """`None` for equal texts. The model's dial skips nothing."""
    if list(greedy) == list(speculative):
        return None
    both = min(len(greedy), len(speculative))
    position = next((at for at in range(both) if greedy[at] != speculative[at]), both)
    if position == both:
        first, second = (row[position] if position < len(row) else None for row in (greedy, speculative))
        return Difference(text, position, first, second, None, None)
    at_once, bound = _logits_and_bound(model, [*prompt, *greedy[:position]], len(prompt))
    ours, theirs = greedy[position], speculative[position]
    return Difference(text, position, ours, theirs, float(at_once[ours] - at_once[theirs]), bound)


@torch.no_grad()
def _logits_and_bound(model: AdaptiveModel, tokens: Sequence[int], prompt: int) -> tuple[torch.Tensor, float]:
    """Logits [V] after the last token in one call, and twice the largest difference to those of single tokens."""
    ids = torch.tensor([list(tokens)], device=model.device)
    at_once = model(ids, logits_to_keep=len(tokens) - prompt + 1).logits[0].float()
    output = model(ids[:, :prompt], use_cache=True, logits_to_keep=1)
    largest = float((output.logits[0, 0].float() - at_once[0]).abs().max())
    for step, at in enumerate(range(prompt, len(tokens)), start=1):
        output = model(ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
        largest = max(largest, float((output.logits[0, 0].float() - at_once[step]).abs().max()))
    return at_once[-1], 2 * largest
