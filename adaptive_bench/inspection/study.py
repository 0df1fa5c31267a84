"""Methods on texts at several dial values: who executes what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.subject import Subjects
from adaptive_bench.inspection.token_kinds import kinds_of
from adaptive_bench.model.text_decisions import TextDecisions, encoded, text_decisions
from adaptive_bench.model.tokenization import end_tokens

if TYPE_CHECKING:
    from pandas import DataFrame

    from adaptive_bench.model import AdaptiveModel

SAVINGS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # that a method has no dial value for are left out
Text = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Point:
    """A method at one dial value.

    Attributes:
        saving: Share of token-branches that the dial was set to skip.
        texts: The decisions on each text.
    """

    saving: float
    texts: list[TextDecisions]

    @property
    def saved(self) -> float:
        """Share of token-branches that were skipped, of all texts together."""
        return 1.0 - float(np.concatenate([one.keep.ravel() for one in self.texts]).mean())


@dataclass(frozen=True)
class Reading:
    """What one method did.

    Attributes:
        spec, dial_name, unit, semantics: Of the method.
        points: By rising saving, at least one.
    """

    spec: str
    dial_name: str
    unit: str
    semantics: str
    points: list[Point]


@dataclass(frozen=True)
class Inspection:
    """What was looked at.

    Attributes:
        name: Of the run or model.
        about: What was read: a file's name, or tasks.
        readings: One for each method; the texts are the same.
        notes: What the reader should know, one sentence each.
        ends: Token ids that end a text.
    """

    name: str
    about: str
    readings: list[Reading]
    notes: list[str]
    ends: frozenset[int]

    @property
    def texts(self) -> list[TextDecisions]:
        """The texts, as the first method's first dial value has them."""
        return self.readings[0].points[0].texts


def inspect_texts(
    subjects: Subjects, texts: Sequence[Text], savings: Sequence[float] | None, *, about: str
) -> Inspection:
    """Read texts with each method at each saving.

    Args:
        texts: Token ids of a prompt and of an answer each.
        savings: Shares of token-branches to skip; by default `SAVINGS`, as far as a method goes.

    Raises:
        UsageError: A text is longer than the model reads, or a method has none of the savings.
    """
    limit = getattr(subjects.models[0].backbone.config, "max_position_embeddings", None)
    for prompt, answer in texts:
        if limit is not None and len(prompt) + len(answer) > limit:
            raise UsageError(
                f"A text has to fit into the {limit} tokens that the model reads, got {len(prompt) + len(answer)}. "
                f"Shorten it, or lower --max-new-tokens."
            )
    readings, notes = [], list(subjects.notes)
    for model in subjects.models:
        reading, left_out = _read(model, subjects, texts, savings or SAVINGS)
        readings.append(reading)
        if left_out and savings is not None:
            notes.append(f"{reading.spec} has no dial value for {left_out[0]}")
        if reading.semantics == "paper" and model.method.paper_class != "C0":
            notes.append(
                f"{reading.spec} decides on all tokens of a call together: here that is the whole text in one call, "
                f"not how it would write the answer."
            )
    ends = {subjects.tokenizer.eos_token_id} - {None}
    return Inspection(subjects.name, about, readings, notes, frozenset(ends))


def _read(
    model: AdaptiveModel, subjects: Subjects, texts: Sequence[Text], savings: Sequence[float]
) -> tuple[Reading, list[str]]:
    points, left_out = [], []
    for saving in sorted(savings):
        try:
            model.saving = saving
        except UsageError as error:  # beyond what the method can do, or what it was calibrated for
            left_out.append(f"{100 * saving:g} %: {error}")
            continue
        points.append(Point(saving, [text_decisions(model, subjects.tokenizer, *text) for text in texts]))
    if not points:
        raise UsageError(f"{model.spec} has a dial value for none of the savings. {left_out[0]}")
    method = model.method
    return Reading(str(model.spec), method.dial.name, method.unit, method.semantics, points), left_out


def one_text(subjects: Subjects, prompt: str, answer: str | None, max_new_tokens: int) -> Text:
    """A prompt and its answer as tokens: the one given, or what the first model writes greedily with nothing skipped.

    Raises:
        UsageError: The prompt has no tokens.
    """
    first, rest = encoded(subjects.tokenizer, prompt, answer or "")
    if not first:
        raise UsageError(f"A text of one token or more is looked into, got {prompt!r}. Give one.")
    if answer is not None or max_new_tokens == 0:
        return first, rest
    model = subjects.models[0]
    model.dial = model.method.dial.skip_nothing
    ids = torch.tensor([first], device=model.device)
    ends = list(end_tokens(model, subjects.tokenizer)) or None
    how: Any = {"do_sample": False, "eos_token_id": ends, "pad_token_id": ends and ends[0]}
    written = model.generate(ids, max_new_tokens=max_new_tokens, **how)
    return first, written[0, len(first) :].tolist()


def tidy(inspection: Inspection) -> DataFrame:
    """One row for each text, method, saving, token and branch: the columns of `TextDecisions.tidy`, and `text`,
    `saving` (asked for), `kind` of the token.
    """
    import pandas

    parts = []
    for reading in inspection.readings:
        for point in reading.points:
            for number, one in enumerate(point.texts):
                sites = one.keep.shape[1] * one.keep.shape[2]
                table = one.tidy()
                table.insert(0, "text", number)
                table.insert(2, "saving", point.saving)
                kinds = kinds_of(one.pieces, one.token_ids, inspection.ends)
                table.insert(table.columns.get_loc("token") + 1, "kind", np.asarray(kinds, dtype=object).repeat(sites))
                parts.append(table)
    return pandas.concat(parts, ignore_index=True)
