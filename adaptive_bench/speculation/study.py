"""Speculation at several savings of the draft beside greedy decoding: the same texts, in turns, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_bench.engine.ledger import Ledger, saved_shares
from adaptive_bench.errors import UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.generation import new_tokens
from adaptive_bench.model.padding import padded
from adaptive_bench.model.speculation import Part, Round, Speculation, self_speculate
from adaptive_bench.model.timing.clock import Quantiles, in_turns, speedups
from adaptive_bench.model.timing.hardware import environment
from adaptive_bench.progress import Reporter
from adaptive_bench.speculation.difference import Difference, find_difference
from adaptive_bench.speculation.drafter import Drafter
from adaptive_bench.speculation.prompts import Prompts, prompts_of

VERSION = 2
_WRITING: tuple[Part, ...] = ("draft", "verification")


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        tasks: Whose prompts are continued.
        limit: Documents of each task, a seeded draw.
        savings: Shares of token-branches that drafting skips.
        drafts: Most tokens drafted in a round.
        batches: Rows of a batch; each is a setting of its own.
        new: Most new tokens of a text.
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


def study(drafter: Drafter, settings: Settings, reporter: Reporter) -> dict[str, Any]:
    """Measure, and put the record together: plain values.

    Raises:
        UsageError: The method cannot save that much, or there are fewer texts than rows.
    """
    model = drafter.model
    prompts = prompts_of(
        model,
        drafter.tokenizer,
        settings.tasks,
        limit=settings.limit,
        new=settings.new,
        num_fewshot=settings.num_fewshot,
        data_dir=settings.data_dir,
    )
    if len(prompts.token_ids) < max(settings.batches):
        raise UsageError(
            f"A batch of {max(settings.batches)} needs as many prompts, but {', '.join(settings.tasks)} with --limit "
            f"{settings.limit} has {len(prompts.token_ids)}. Raise --limit or lower --batch."
        )
    _check_savings(drafter, settings.savings)  # before anything is measured
    with reporter.task("speculate", 2 * len(settings.batches)) as task:
        measured = [_Batches(drafter, settings, prompts, rows, task.advance).measure() for rows in settings.batches]
    return {
        "kind": "speculation",
        "version": VERSION,
        "model": drafter.name,
        "method": drafter.trained_as,
        "settings": {name: value for name, value in asdict(settings).items() if name != "data_dir"},
        "texts": len(prompts.token_ids),
        "shortened_prompts": prompts.shortened,
        "environment": environment(model.device) | {"precision": str(model.dtype).removeprefix("torch.")},
        "batches": measured,
    }


def _check_savings(drafter: Drafter, savings: Iterable[float]) -> None:
    """Refuse what the dial does not reach, by the option's name: its default may be more than a method can save."""
    for saving in savings:
        if (why := _refused(drafter, saving)) is None:
            continue
        most = next((share for share in range(int(100 * saving), 0, -1) if not _refused(drafter, share / 100)), None)
        if most is None:
            raise UsageError(f"{drafter.trained_as} drafts at none of --savings. {why} Name another --method.")
        raise UsageError(
            f"{drafter.trained_as} drafts with savings up to {most / 100:g} here, got {saving:g} in --savings. Give "
            f"smaller ones, such as --savings {most / 100:g}."
        )


def _refused(drafter: Drafter, saving: float) -> UsageError | None:
    try:
        drafter.at(saving)
    except UsageError as error:
        return error
    return None


@dataclass(frozen=True)
class _Written:
    """All texts, and what writing them took after their prompts were read."""

    texts: list[list[int]]
    rounds: list[list[Round]]
    books: dict[str, Ledger]


class _Batches:
    """The texts at one batch size."""

    def __init__(
        self, drafter: Drafter, settings: Settings, prompts: Prompts, rows: int, advance: Callable[[], None]
    ) -> None:
        self._drafter, self._settings, self._prompts, self._rows = drafter, settings, prompts, rows
        self._model: AdaptiveModel = drafter.model
        self._advance = advance

    def measure(self) -> dict[str, Any]:
        """The record of this batch size."""
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
        # Every variant has run once already: nothing is left to warm up.
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
        rows = self._prompts.token_ids
        for start in range(0, len(rows), self._rows):
            ids, mask = padded(rows[start : start + self._rows], self._model.device, left=True)
            yield {"input_ids": ids, "attention_mask": None if bool(mask.all()) else mask}

    @property
    def _common(self) -> dict[str, Any]:
        return {"max_new_tokens": self._settings.new, "eos_token_ids": self._prompts.ends}

    def _greedy(self) -> list[list[int]]:
        model = self._model
        model.dial = model.method.dial.skip_nothing
        return [row for inputs in self._inputs() for row in new_tokens(model, **inputs, **self._common)]

    def _speculate(self, saving: float) -> list[Speculation]:
        how: dict[str, Any] = {"draft_dial": self._drafter.at(saving), "drafts": self._settings.drafts}
        return [self_speculate(self._model, **inputs, **self._common, **how) for inputs in self._inputs()]

    def _point(
        self, saving: float, greedy: _Written, ours: _Written, ours_s: Sequence[float], greedy_s: Sequence[float]
    ) -> dict[str, Any]:
        rounds = [each for row in ours.rounds for each in row]
        drafted, accepted = sum(each.drafted for each in rounds), sum(each.accepted for each in rounds)
        pairs = zip(self._prompts.token_ids, greedy.texts, ours.texts, strict=True)
        differences = [
            find_difference(self._model, number, prompt, expected, text)
            for number, (prompt, expected, text) in enumerate(pairs)
        ]
        found = [each for each in differences if each is not None]
        return {
            "saving": saving,
            "dial": self._drafter.at(saving),
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
            "differences": [_plain(each) for each in found],
        }


def _joined(found: Sequence[Speculation]) -> _Written:
    """Several batches as one."""
    first = found[0].books["draft"]
    books: dict[str, Ledger] = {part: Ledger(first.costs) for part in _WRITING}
    for each in found:
        for part in _WRITING:
            books[part].add(each.books[part].counts())
    texts = [row for each in found for row in each.tokens]
    return _Written(texts, [row for each in found for row in each.rounds], books)


def _cost(written: _Written) -> dict[str, Any]:
    """Of a token that is not the first of its text: bytes of weights read and FLOPs, of each part too."""
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
    """Texts that differ from the greedy ones by more than rounding explains."""
    return sum(not each["near_tie"] for point in _points(record) for each in point["differences"])


def _points(record: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return (point for batch in record["batches"] for point in batch["points"])


def _plain(difference: Difference) -> dict[str, Any]:
    return asdict(difference) | {"near_tie": difference.is_near_tie}


def _decoded(texts: Sequence[Sequence[int]]) -> int:
    """New tokens but the first of each text, which comes from reading its prompt."""
    return sum(len(text) - 1 for text in texts)


def _each(total: float, tokens: int) -> float | None:
    return total / tokens if tokens else None


def _speed(texts: Sequence[Sequence[int]], taken_s: Sequence[float]) -> dict[str, Any]:
    """New tokens of all texts a second, prompts included."""
    tokens = sum(map(len, texts))
    return {"tokens_per_s": Quantiles.of(tokens / seconds for seconds in taken_s).to_json()}
