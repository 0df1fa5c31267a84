"""The two executors and the cache mean the same."""

from __future__ import annotations

from itertools import pairwise

import torch

from adaptive_bench.testing.check import Facts, NotApplicable, check
from adaptive_bench.testing.checks.comparison import TOLERANCE, demand, difference, generated_tokens, logits_of
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
    text.attention_mask[1, :2] = 0
    end = text.input_ids.shape[1]
    for dial in subject.all_dials:
        model.dial = dial
        for model.executor, cuts in (
            ("packed", range(prompt, end + 1)),
            ("masked", (prompt, prompt + 1, end - 4, end)),
        ):
            first = text.prefix(prompt)
            output = model(first.input_ids, first.attention_mask, use_cache=True)
            parts = [output.logits]
            for start, stop in pairwise(cuts):
                output = model(text.input_ids[:, start:stop], past_key_values=output.past_key_values, use_cache=True)
                parts.append(output.logits)
            worst = difference(torch.cat(parts, dim=1)[text.valid], logits_of(model, text))
            demand(
                worst <= TOLERANCE,
                f"A cache must change nothing, but at dial {dial:g} ({model.executor}) logits differ by {worst:.2g}. "
                "Decide by view.call.continuation instead of phase or call length, and keep what a request must "
                "remember in view.call.session.state.",
            )
    return {"kv_cache": "exact"}
