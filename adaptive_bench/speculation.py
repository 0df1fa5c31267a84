"""Measures how much faster self-speculative decoding is than plain greedy decoding, and that it writes the same text.

Both write the same texts, one by one, in turns, at several savings of the draft. Drafting saves time and no FLOPs, so
nothing here enters a table of matched savings.

Verification reads several tokens in one call while greedy decoding reads one, so sums are taken in another order and
logits differ by rounding. If r is the largest such difference, two candidates whose logits lie within 2 r of each other
may change places: a near-tie. A larger gap is a defect. r is measured on the text itself, with the full model and
without drafts: it is the largest difference of any logit at any position up to the differing token, between reading
token by token and reading all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from adaptive_bench.engine.ledger import Ledger, saved_shares
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.hardware import environment
from adaptive_bench.headroom.named_models import Subjects, find_subjects, saved_folder
from adaptive_bench.headroom.task_texts import requests_of
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import Quantiles, in_turns, speedups
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.model.speculative_decoding import Speculation, self_speculate
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.timing import PRECISIONS
from adaptive_bench.runs.trained import find_model
from adaptive_bench.spec import MethodSpec

VERSION = 3


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement."""

    tasks: tuple[str, ...]
    limit: int = 8  # documents per task, a seeded draw
    savings: tuple[float, ...] = (0.25, 0.5)  # shares of token-branches that drafting skips
    drafts: int = 4  # at most, in a round
    new: int = 64  # tokens per text, at most
    rounds: int = 3  # of timing; in each, greedy decoding and every saving write all texts once
    num_fewshot: int | None = None
    data_dir: Path | None = None


def find_drafter(
    name: str, method: str | None, *, out: Path, tasks: Sequence[str], precision: str = "fp32", device: str = "auto"
) -> Subjects:
    """Find the model that drafts and verifies: a model of a run or a saved model, with the calibration stored for the
    first task, or an untrained method on a plain model; see `find_subjects`.
    """
    folder = saved_folder(name, out)
    if method is None:
        # On a plain model `static_depth`, which needs neither training nor calibration.
        method = "static_depth" if folder is None else str(read_saved(find_model(folder, None)[0]).spec)
    specs, dtype = [MethodSpec.parse(method)], PRECISIONS[precision]
    found = find_subjects(name, specs, out=out, task=tasks[0], device=device, dtype=dtype, asked="--method")
    if found.models[0].method.prompts_only:
        raise UsageError(
            f"A draft is text that is written while tokens skip, but {method} skips only in prompts: its drafts would "
            "be those of the full model. Name another method."
        )
    return found


def dial_at(model: AdaptiveModel, saving: float) -> float:
    """Return the dial value for a share of token-branches that drafting skips."""
    try:
        model.saving = saving
    except UsageError as error:
        raise UsageError(f"{model.spec} cannot draft with {saving:g} of --savings. {error}") from error
    # The model is left at skip-nothing, which `find_difference` relies on.
    dial, model.dial = model.dial, model.method.dial.skip_nothing
    return dial


def prompts_of(subjects: Subjects, settings: Settings) -> tuple[list[list[int]], int, tuple[int, ...]]:
    """Return the different prompts of test documents as tokens, at least one token each; how many of them were cut at
    the beginning to leave room for new tokens; and the tokens that end a text.
    """
    lm = AdaptiveLM(subjects.models[0], subjects.tokenizer, batch_size=1)
    room = lm.context_length - settings.new
    if room < 1:
        raise UsageError(
            f"New tokens have to leave room for a prompt in the context of {lm.context_length} tokens, got "
            f"--max-new-tokens {settings.new}. Lower it."
        )
    texts: dict[str, None] = {}  # each once: multiple-choice tasks ask one prompt for every choice
    how: dict[str, Any] = {"data_dir": settings.data_dir, "num_fewshot": settings.num_fewshot}
    for name in settings.tasks:
        requests = requests_of(name, split="test", limit=settings.limit, **how)
        if any(request.request_type == "loglikelihood_rolling" for request in requests):
            raise UsageError(
                f"Texts are written after prompts, but {name} asks for the likelihood of whole texts. Name a task "
                "whose answers are written or chosen."
            )
        texts |= dict.fromkeys(request.args[0] for request in requests)
    encoded = [lm.tok_encode(text) or [lm.prefix_token_id] for text in texts]
    # The end of a prompt has the question.
    return [row[-room:] for row in encoded], sum(len(row) > room for row in encoded), lm.end_tokens


def study(drafter: Subjects, settings: Settings, reporter: Reporter) -> dict[str, Any]:
    """Measure everything, and return the record as plain values."""
    (model,) = drafter.models
    prompts, shortened, ends = prompts_of(drafter, settings)
    dials = {saving: dial_at(model, saving) for saving in settings.savings}  # refuses wrong savings before measuring
    # [1, S] each: texts are written one by one.
    rows = [torch.tensor([prompt], device=model.device) for prompt in prompts]
    common: dict[str, Any] = {"max_new_tokens": settings.new, "eos_token_ids": ends}

    def write_greedily() -> list[list[int]]:
        model.dial = model.method.dial.skip_nothing
        return [new_tokens(model, ids, **common)[0] for ids in rows]

    def speculate(saving: float) -> list[Speculation]:
        how: dict[str, Any] = {"draft_dial": dials[saving], "drafts": settings.drafts}
        return [self_speculate(model, ids, **common, **how) for ids in rows]

    with reporter.task("speculate", 2) as task:
        model.reset_ledger()
        texts = write_greedily()
        cost = _cost(texts, model.ledger)
        points = [
            _point(model, saving, dials[saving], prompts, texts, speculate(saving)) for saving in settings.savings
        ]
        task.advance()
        variants: dict[str, Callable[[], object]] = {"greedy": write_greedily}
        variants |= {str(saving): partial(speculate, saving) for saving in settings.savings}
        # Every variant has run once already, so no warm-up is needed.
        taken_s = in_turns(variants, settings.rounds, warm_up=0, device=model.device)
        task.advance()
    return {
        "kind": "speculation",
        "version": VERSION,
        "model": drafter.name,
        "method": str(model.spec),
        "settings": {name: value for name, value in asdict(settings).items() if name != "data_dir"},
        "texts": len(prompts),
        "shortened_prompts": shortened,
        "environment": environment(model.device) | {"precision": str(model.dtype).removeprefix("torch.")},
        "greedy": cost | _speed(cost["tokens"], taken_s["greedy"]),
        "points": [
            point
            | _speed(point["tokens"], taken_s[str(point["saving"])])
            | {"speedup": asdict(speedups(taken_s["greedy"], taken_s[str(point["saving"])]))}
            for point in points
        ],
    }


def _point(
    model: AdaptiveModel,
    saving: float,
    dial: float,
    prompts: Sequence[Sequence[int]],
    greedy: Sequence[list[int]],
    ours: Sequence[Speculation],
) -> dict[str, Any]:
    """Return what drafting at one saving did, apart from its time."""
    rounds = [each for one in ours for each in one.rounds]
    drafted, accepted = sum(each.drafted for each in rounds), sum(each.accepted for each in rounds)
    # `drafting` tells what drafts skip; `writing` is all work after the prompt, like greedy decoding's `decode` phase.
    drafting, writing = Ledger(model.backbone.costs), Ledger(model.backbone.costs)
    for one in ours:
        drafting.add(one.books["draft"].counts())
        for part in ("draft", "verification"):
            writing.add(one.books[part].counts())
    cost = _cost([one.tokens for one in ours], writing)
    triples = zip(prompts, greedy, ours, strict=True)
    found = [
        find_difference(model, number, prompt, expected, one.tokens)
        for number, (prompt, expected, one) in enumerate(triples)
    ]
    differences = [each for each in found if each is not None]
    return {
        "saving": saving,
        "dial": dial,
        "draft_saved": saved_shares(drafting.counts())["decode"],
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": accepted / drafted if drafted else None,
        "verifications": len(rounds),
        "tokens_per_verification": cost["decoded_tokens"] / len(rounds) if rounds else None,
        **cost,
        "equal_texts": len(ours) - len(differences),
        "differences": differences,
    }


def _cost(texts: Sequence[Sequence[int]], writing: Ledger) -> dict[str, Any]:
    """Return weight bytes read and FLOPs per decoded token, which is any but the first of a text: that one comes from
    reading the prompt.
    """
    tokens = sum(map(len, texts))
    decoded = tokens - len(texts)
    macs = float(writing.macs("decode").sum())
    return {
        "tokens": tokens,
        "decoded_tokens": decoded,
        "bytes_per_token": writing.weight_bytes("decode") / decoded if decoded else None,
        "flops_per_token": 2 * macs / decoded if decoded else None,
    }


def _speed(tokens: int, taken_s: Sequence[float]) -> dict[str, Any]:
    """Return the new tokens of all texts per second, the time of reading prompts included."""
    return {"tokens_per_s": asdict(Quantiles.of(tokens / seconds for seconds in taken_s))}


def defects(record: dict[str, Any]) -> int:
    """Return the number of texts that differ from the greedy ones by more than rounding explains."""
    return sum(not each["near_tie"] for point in record["points"] for each in point["differences"])


def find_difference(
    model: AdaptiveModel, text: int, prompt: Sequence[int], greedy: Sequence[int], speculative: Sequence[int]
) -> dict[str, Any] | None:
    """Find the first difference of two texts; `None` if they are equal. The model's dial must skip nothing.

    Returns:
        `position` among the new tokens, the two tokens (`None` if that text has ended), the `gap` of their logits in
        one call of the full model, its `bound` (the largest gap that rounding explains, 2 r), and whether it is a
        `near_tie`. If a text ended, gap and bound are `None`, and it is a defect.
    """
    if list(greedy) == list(speculative):
        return None
    both = min(len(greedy), len(speculative))
    # If one text is the beginning of the other, they differ where it ended.
    position = next((at for at in range(both) if greedy[at] != speculative[at]), both)
    ours, theirs = (row[position] if position < len(row) else None for row in (greedy, speculative))
    gap = bound = None
    if ours is not None and theirs is not None:
        at_once, bound = _logits_and_bound(model, [*prompt, *greedy[:position]], len(prompt))
        gap = float(at_once[ours] - at_once[theirs])
    return {
        "text": text,
        "position": position,
        "greedy": ours,
        "speculative": theirs,
        "gap": gap,
        "bound": bound,
        "near_tie": gap is not None and bound is not None and abs(gap) <= bound,
    }


@torch.no_grad()
def _logits_and_bound(model: AdaptiveModel, tokens: Sequence[int], prompt: int) -> tuple[torch.Tensor, float]:
    """Return the logits [V] after the last token in one call, and twice their largest difference (at any position) from
    the logits of reading token by token.
    """
    ids = torch.tensor([list(tokens)], device=model.device)
    # [N + 1, V]: after the prompt, and after each of the N tokens that follow it.
    at_once = model(ids, logits_to_keep=len(tokens) - prompt + 1).logits[0].float()
    # As plain decoding does: the prompt in one call, then one token at a time from the cache.
    output = model(ids[:, :prompt], use_cache=True, logits_to_keep=1)
    largest = float((output.logits[0, 0].float() - at_once[0]).abs().max())
    for step, at in enumerate(range(prompt, len(tokens)), start=1):
        output = model(ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
        largest = max(largest, float((output.logits[0, 0].float() - at_once[step]).abs().max()))
    return at_once[-1], 2 * largest
