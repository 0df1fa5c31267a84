"""Compares self-speculative decoding with plain greedy decoding: the same texts, in turns, in one process, at several
savings of the draft. Decoding itself is in `adaptive_bench.model.speculative_decoding`. It saves time and no FLOPs, so
nothing here enters a table of matched savings.

Verification reads several tokens in one call while greedy decoding reads one, so sums are taken in another order and
logits differ by rounding. If r is the largest such difference, two candidates whose logits lie within 2 r of each other
may change places: a near-tie. A larger gap is a defect. r is measured on the text itself, with the full model and
without drafts: it is the largest difference of any logit at any position up to the differing token, between reading
token by token and reading all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from adaptive_bench.engine.ledger import Ledger, saved_shares
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.language_model import AdaptiveLM
from adaptive_bench.headroom.asking import requests_of
from adaptive_bench.headroom.subject import Subjects, find_subjects, saved_folder
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import Quantiles, in_turns, speedups
from adaptive_bench.model.generation import new_tokens, padded
from adaptive_bench.model.hardware import environment
from adaptive_bench.model.saving import read as read_saved
from adaptive_bench.model.speculative_decoding import Part, Round, Speculation, self_speculate
from adaptive_bench.progress import Reporter
from adaptive_bench.runs.trained import find_checkpoint
from adaptive_bench.spec import MethodSpec

VERSION = 2
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_UNTRAINED = "static_depth"  # default method on a plain model, since it needs neither training nor calibration
_WRITING: tuple[Part, ...] = ("draft", "verification")


@dataclass(frozen=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        tasks: Tasks whose prompts are continued.
        limit: Number of documents per task, a seeded draw.
        savings: Shares of token-branches that drafting skips.
        drafts: Largest number of tokens drafted in a round.
        batches: Rows of a batch; each value is measured separately.
        new: Largest number of new tokens per text.
        rounds: Rounds of timing; in each, greedy decoding and every saving write all texts once.
    """

    tasks: tuple[str, ...]
    limit: int = 8
    savings: tuple[float, ...] = (0.25, 0.5)
    drafts: int = 4
    batches: tuple[int, ...] = (1, 8)
    new: int = 64
    rounds: int = 3
    num_fewshot: int | None = None
    data_dir: Path | None = None


def find_drafter(
    name: str, method: str | None, *, out: Path, tasks: Sequence[str], precision: str = "fp32", device: str = "auto"
) -> Subjects:
    """Find the model that drafts and verifies: a model of a run or a saved model, with its calibration, or an untrained
    method on a plain model.

    Args:
        method: Method spec. For a run it must be one of the run's methods; for a plain model the default is
            `static_depth`.
        tasks: The calibration stored for the first task is used; see `find_subjects`.

    Raises:
        UsageError: See `find_subjects`; or the method skips only in prompts.
    """
    folder = saved_folder(name, out)
    if method is None:
        method = _UNTRAINED if folder is None else str(read_saved(find_checkpoint(folder, None)).spec)
    specs, dtype = [MethodSpec.parse(method)], PRECISIONS[precision]
    found = find_subjects(name, specs, out=out, task=tasks[0], device=device, dtype=dtype, asked="--method")
    if found.models[0].method.prompts_only:
        raise UsageError(
            f"A draft is text that is written while tokens skip, but {method} skips only in prompts: its drafts would "
            "be those of the full model. Name another method."
        )
    return found


def dial_at(model: AdaptiveModel, saving: float) -> float:
    """Return the dial value for a share of token-branches that drafting skips.

    Raises:
        UsageError: The method cannot save that much, or is not calibrated for it.
    """
    try:
        model.saving = saving
    except UsageError as error:
        raise UsageError(f"{model.spec} cannot draft with {saving:g} of --savings. {error}") from error
    dial, model.dial = model.dial, model.method.dial.skip_nothing
    return dial


def prompts_of(subjects: Subjects, settings: Settings) -> tuple[list[list[int]], int, tuple[int, ...]]:
    """Return the different prompts of test documents as tokens, at least one token each; how many of them were cut at
    the beginning to leave room for new tokens; and the tokens that end a text.

    Raises:
        UsageError: A task asks for the likelihood of whole texts, which have no prompts; or the context leaves no room
            for a prompt.
    """
    lm = AdaptiveLM(subjects.models[0], subjects.tokenizer, batch_size=1)
    room = lm.context_length - settings.new
    if room < 1:
        raise UsageError(
            f"New tokens have to leave room for a prompt in the context of {lm.context_length} tokens, got "
            f"--max-new-tokens {settings.new}. Lower it."
        )
    texts: dict[str, None] = {}
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
    return [row[-room:] for row in encoded], sum(len(row) > room for row in encoded), lm.end_tokens


def study(drafter: Subjects, settings: Settings, reporter: Reporter) -> dict[str, Any]:
    """Measure everything, and return the record as plain values.

    Raises:
        UsageError: The method cannot save that much, or there are fewer texts than rows of a batch.
    """
    (model,) = drafter.models
    prompts, shortened, ends = prompts_of(drafter, settings)
    if len(prompts) < max(settings.batches):
        raise UsageError(
            f"A batch of {max(settings.batches)} needs as many prompts, but {', '.join(settings.tasks)} with --limit "
            f"{settings.limit} has {len(prompts)}. Raise --limit or lower --batch."
        )
    dials = {saving: dial_at(model, saving) for saving in settings.savings}  # refuses wrong savings before measuring
    with reporter.task("speculate", 2 * len(settings.batches)) as task:
        measured = [
            _Batches(model, settings, dials, prompts, ends, rows, task.advance).measure() for rows in settings.batches
        ]
    return {
        "kind": "speculation",
        "version": VERSION,
        "model": drafter.name,
        "method": str(model.spec),
        "settings": {name: value for name, value in asdict(settings).items() if name != "data_dir"},
        "texts": len(prompts),
        "shortened_prompts": shortened,
        "environment": environment(model.device) | {"precision": str(model.dtype).removeprefix("torch.")},
        "batches": measured,
    }


@dataclass(frozen=True)
class _Written:
    """All texts, with the rounds and the ledgers of writing them after their prompts were read."""

    texts: list[list[int]]
    rounds: list[list[Round]]
    books: dict[str, Ledger]


class _Batches:
    """Measures all texts at one batch size."""

    def __init__(
        self,
        model: AdaptiveModel,
        settings: Settings,
        dials: Mapping[float, float],
        prompts: Sequence[list[int]],
        ends: tuple[int, ...],
        rows: int,
        advance: Callable[[], None],
    ) -> None:
        self._model, self._settings, self._dials = model, settings, dials
        self._prompts, self._rows = prompts, rows
        self._common: dict[str, Any] = {"max_new_tokens": settings.new, "eos_token_ids": ends}
        self._advance = advance

    def measure(self) -> dict[str, Any]:
        """Measure, and return the record of this batch size."""
        self._model.reset_ledger()
        texts = self._greedy()
        books = Ledger(self._model.backbone.costs)
        books.add(self._model.ledger.counts())
        greedy = _Written(texts, [], {"greedy": books})
        savings = self._settings.savings
        found = {saving: _joined(self._speculate(saving)) for saving in savings}
        self._advance()
        variants: dict[str, Callable[[], object]] = {"greedy": self._greedy}
        variants |= {str(saving): partial(self._speculate, saving) for saving in savings}
        # Every variant has run once already, so no warm-up is needed.
        taken_s = in_turns(variants, self._settings.rounds, warm_up=0, device=self._model.device)
        self._advance()
        return {
            "batch": self._rows,
            "greedy": _cost(greedy) | _speed(texts, taken_s["greedy"]),
            "points": [
                self._point(saving, greedy, found[saving], taken_s[str(saving)], taken_s["greedy"])
                for saving in savings
            ],
        }

    def _inputs(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self._prompts), self._rows):
            ids, mask = padded(self._prompts[start : start + self._rows], self._model.device, left=True)
            yield {"input_ids": ids, "attention_mask": None if bool(mask.all()) else mask}

    def _greedy(self) -> list[list[int]]:
        model = self._model
        model.dial = model.method.dial.skip_nothing
        return [row for inputs in self._inputs() for row in new_tokens(model, **inputs, **self._common)]

    def _speculate(self, saving: float) -> list[Speculation]:
        how: dict[str, Any] = {"draft_dial": self._dials[saving], "drafts": self._settings.drafts}
        return [self_speculate(self._model, **inputs, **self._common, **how) for inputs in self._inputs()]

    def _point(
        self, saving: float, greedy: _Written, ours: _Written, ours_s: Sequence[float], greedy_s: Sequence[float]
    ) -> dict[str, Any]:
        rounds = [each for row in ours.rounds for each in row]
        drafted, accepted = sum(each.drafted for each in rounds), sum(each.accepted for each in rounds)
        pairs = zip(self._prompts, greedy.texts, ours.texts, strict=True)
        differences = [
            find_difference(self._model, number, prompt, expected, text)
            for number, (prompt, expected, text) in enumerate(pairs)
        ]
        found = [each for each in differences if each is not None]
        return {
            "saving": saving,
            "dial": self._dials[saving],
            "draft_saved": saved_shares(ours.books["draft"].counts())["decode"],
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "verifications": len(rounds),
            "tokens_per_verification": _decoded(ours.texts) / len(rounds) if rounds else None,
            **_cost(ours),
            **_speed(ours.texts, ours_s),
            "speedup": speedups(greedy_s, ours_s).to_json(),
            "equal_texts": len(differences) - len(found),
            "differences": [asdict(each) | {"near_tie": each.is_near_tie} for each in found],
        }


def _joined(found: Sequence[Speculation]) -> _Written:
    """Join the results of several batches."""
    first = found[0].books["draft"]
    books: dict[str, Ledger] = {part: Ledger(first.costs) for part in _WRITING}
    for each in found:
        for part in _WRITING:
            books[part].add(each.books[part].counts())
    texts = [row for each in found for row in each.tokens]
    return _Written(texts, [row for each in found for row in each.rounds], books)


def _cost(written: _Written) -> dict[str, Any]:
    """Return weight bytes read and FLOPs per decoded token (any but the first of a text), in total and by part."""
    tokens = _decoded(written.texts)
    macs = {part: float(ledger.macs("decode").sum()) for part, ledger in written.books.items()}
    read = {part: ledger.weight_bytes("decode") for part, ledger in written.books.items()}
    return {
        "tokens": sum(map(len, written.texts)),
        "decoded_tokens": tokens,
        "bytes_per_token": _each(sum(read.values()), tokens),
        "flops_per_token": _each(2 * sum(macs.values()), tokens),
        "parts": {
            part: {"bytes_per_token": _each(read[part], tokens), "flops_per_token": _each(2 * macs[part], tokens)}
            for part in written.books
        },
    }


def defects(record: dict[str, Any]) -> int:
    """Return the number of texts that differ from the greedy ones by more than rounding explains."""
    points = (point for batch in record["batches"] for point in batch["points"])
    return sum(not each["near_tie"] for point in points for each in point["differences"])


def _decoded(texts: Sequence[Sequence[int]]) -> int:
    """Count the new tokens except for the first of each text, which comes from reading its prompt."""
    return sum(len(text) - 1 for text in texts)


def _each(total: float, tokens: int) -> float | None:
    return total / tokens if tokens else None


def _speed(texts: Sequence[Sequence[int]], taken_s: Sequence[float]) -> dict[str, Any]:
    """Return the new tokens of all texts per second, the time of reading prompts included."""
    tokens = sum(map(len, texts))
    return {"tokens_per_s": Quantiles.of(tokens / seconds for seconds in taken_s).to_json()}


@dataclass(frozen=True)
class Difference:
    """The first place at which two texts differ.

    Attributes:
        text: Number of the prompt, from 0.
        position: Position among the new tokens, from 0.
        greedy, speculative: The two tokens; `None` if that text has ended.
        gap: Logit of the greedy token minus that of the other, in one call of the full model; `None` if a text ended.
        bound: Largest gap that rounding explains, 2 r; `None` likewise.
    """

    text: int
    position: int
    greedy: int | None
    speculative: int | None
    gap: float | None
    bound: float | None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains the difference."""
        return self.gap is not None and self.bound is not None and abs(self.gap) <= self.bound


def find_difference(
    model: AdaptiveModel, text: int, prompt: Sequence[int], greedy: Sequence[int], speculative: Sequence[int]
) -> Difference | None:
    """Find the first difference of two texts; `None` if they are equal. The model's dial must skip nothing."""
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
    """Return the logits [V] after the last token in one call, and twice their largest difference (at any position) from
    the logits of reading token by token.
    """
    ids = torch.tensor([list(tokens)], device=model.device)
    at_once = model(ids, logits_to_keep=len(tokens) - prompt + 1).logits[0].float()
    output = model(ids[:, :prompt], use_cache=True, logits_to_keep=1)
    largest = float((output.logits[0, 0].float() - at_once[0]).abs().max())
    for step, at in enumerate(range(prompt, len(tokens)), start=1):
        output = model(ids[:, at : at + 1], past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
        largest = max(largest, float((output.logits[0, 0].float() - at_once[step]).abs().max()))
    return at_once[-1], 2 * largest
