"""Records what methods decide on texts at several dial values, as a data frame and as plain values for pages and JSON.

Plain values have masks as bits, and every statistic at every saving. A token that is part of a word or number has the
kind of the whole word or number, so that the tokenizer's cuts do not matter. Function words are English.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.model.text_decisions import TextDecisions, encoded, text_decisions, visible
from adaptive_bench.model.tokenization import end_tokens

if TYPE_CHECKING:
    from pandas import DataFrame


SAVINGS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # those for which a method has no dial value are left out
SCHEMA = 1
FIRST_SHOWN = 0.2  # a page first shows the saving nearest to this
Text = tuple[list[int], list[int]]
KINDS = ("first", "end", "digits", "operator", "punctuation", "function word", "other word", "space", "other")
_OPERATORS = frozenset("+-*/=<>×÷−·%^±≤≥≠≈")
_NUMBER_OR_WORD = re.compile(r"\d(?:[\d.,:]*\d)?|[^\W\d_]+(?:['’][^\W\d_]+)*")
_CONTRACTED = re.compile(r"(?:n['’]t|['’](?:s|m|d|re|ve|ll))$")  # `don't` is looked up as `do`, `it's` as `it`
# English closed word classes: articles, prepositions, pronouns, conjunctions, auxiliaries and question words.
FUNCTION_WORDS = frozenset(files(__package__).joinpath("function_words.txt").read_text(encoding="utf-8").split())


@dataclass(frozen=True)
class Point:
    """A method at one dial value, set to skip the share `saving` of token-branches, with its decisions on each text."""

    saving: float
    texts: list[TextDecisions]

    @property
    def saved(self) -> float:
        """Share of token-branches that were skipped, over all texts together."""
        return 1.0 - float(np.concatenate([one.keep.ravel() for one in self.texts]).mean())


@dataclass(frozen=True)
class Reading:
    """The decisions of one method, in order of rising saving; at least at one."""

    spec: str
    dial_name: str
    unit: str
    semantics: str
    points: list[Point]


@dataclass(frozen=True)
class Inspection:
    """The decisions of several methods on the same texts.

    Attributes:
        name, about: Name of the run or model; the file or tasks that were read.
        readings: One reading for each method.
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
        """The texts, taken from the first method's first dial value."""
        return self.readings[0].points[0].texts


def inspect_texts(
    subjects: Subjects, texts: Sequence[Text], savings: Sequence[float] | None, *, about: str
) -> Inspection:
    """Read texts (token ids of prompt and answer) with each method at each saving; a `UsageError` if a text is longer
    than the model's context, or a method has a dial value for none of the savings.

    Args:
        savings: Shares of token-branches to skip; by default those of `SAVINGS` that a method can reach.
        about: What was read, for the record.
    """
    readings, notes = [], list(subjects.notes)
    for model in subjects.models:
        points, left_out = [], []
        for saving in sorted(savings or SAVINGS):
            try:
                model.saving = saving
            except UsageError as error:  # more than the method can skip or was calibrated for
                left_out.append(f"{100 * saving:g} %: {error}")
                continue
            points.append(Point(saving, [text_decisions(model, subjects.tokenizer, *text) for text in texts]))
        if not points:
            raise UsageError(f"{model.spec} has a dial value for none of the savings. {left_out[0]}")
        if left_out and savings is not None:
            notes.append(f"{model.spec} has no dial value for {left_out[0]}")
        if not model.is_causal:
            notes.append(
                f"{model.spec} decides on all tokens of a call together; here one call has the whole text, which "
                f"differs from how the method would write the answer."
            )
        method = model.method
        readings.append(Reading(str(model.spec), method.dial.name, method.unit, method.semantics, points))
    ends = {subjects.tokenizer.eos_token_id} - {None}  # a tokenizer may have none
    return Inspection(subjects.name, about, readings, notes, frozenset(ends))


def one_text(subjects: Subjects, prompt: str, answer: str | None, max_new_tokens: int) -> Text:
    """The tokens of a prompt and of its answer, which the first model writes greedily with nothing skipped if it is not
    given; a `UsageError` if the prompt has no tokens.
    """
    first, rest = encoded(subjects.tokenizer, prompt, answer or "")
    if not first:
        raise UsageError(f"A text has at least one token, got {prompt!r}. Give some text.")
    if answer is not None or max_new_tokens == 0:
        return first, rest
    model = subjects.models[0]
    model.dial = model.method.dial.skip_nothing
    ids = torch.tensor([first], device=model.device)
    ends = list(end_tokens(model, subjects.tokenizer)) or None
    # A single text needs no padding, so that any token will do.
    how: Any = {"do_sample": False, "eos_token_id": ends, "pad_token_id": ends and ends[0]}
    written = model.generate(ids, max_new_tokens=max_new_tokens, **how)
    return first, written[0, len(first) :].tolist()


def tidy(inspection: Inspection) -> DataFrame:
    """A data frame with one row for each text, method, saving, token and branch: the columns of `TextDecisions.tidy`,
    and `text`, `saving` (as asked for) and `kind` (of the token).
    """
    import pandas

    parts = []
    for reading in inspection.readings:
        for point in reading.points:
            for number, one in enumerate(point.texts):
                sites = one.keep.shape[1] * one.keep.shape[2]
                table = one.tidy()
                table.insert(0, "text", number)
                # Behind `text` and `method`.
                table.insert(2, "saving", point.saving)
                kinds = kinds_of(one.pieces, one.token_ids, inspection.ends)
                table.insert(table.columns.get_loc("token") + 1, "kind", np.asarray(kinds, dtype=object).repeat(sites))
                parts.append(table)
    return pandas.concat(parts, ignore_index=True)


def record_of(inspection: Inspection) -> dict[str, Any]:
    """Everything that a page shows, as plain values."""
    texts = inspection.texts
    kinds = [kinds_of(one.pieces, one.token_ids, inspection.ends) for one in texts]
    groups = [kind for some in kinds for kind in some]
    first = texts[0]
    savings = sorted({point.saving for reading in inspection.readings for point in reading.points})
    return {
        "schema": SCHEMA,
        "name": inspection.name,
        "about": inspection.about,
        "texts": len(texts),
        "tokens": sum(len(one.pieces) for one in texts),
        "layers": first.keep.shape[1],
        "prompt_tokens": first.prompt_tokens,
        "pieces": list(first.pieces),
        "names": [visible(piece) for piece in first.pieces],
        "kinds": kinds[0],
        "savings": savings,
        "first_saving": min(savings, key=lambda saving: abs(saving - FIRST_SHOWN)),
        "methods": [_method(one, groups) for one in inspection.readings],
        "notes": inspection.notes,
    }


def _method(reading: Reading, groups: Sequence[str]) -> dict[str, Any]:
    # At the lowest saving, since whatever is skipped changes the states that later scores are read from.
    least = reading.points[0]
    scores = scores_of(least.texts)
    return {
        "spec": reading.spec,
        "dial_name": reading.dial_name,
        "unit": reading.unit,
        "semantics": reading.semantics,
        "points": {f"{point.saving:g}": _point(point, groups) for point in reading.points},
        "scores": None if scores is None else _scores(scores, len(least.texts[0].pieces)),
    }


def _point(point: Point, groups: Sequence[str]) -> dict[str, Any]:
    # [N, L, 2], over the tokens of all texts.
    keep = np.concatenate([one.keep for one in point.texts])
    by_kind = skipped_by(keep, groups)
    part = [
        "prompt" if place < one.prompt_tokens else "answer" for one in point.texts for place in range(len(one.keep))
    ]
    return {
        "dial": point.texts[0].dial,
        "saved": point.saved,
        # Eight decisions per byte, the first in the highest bit.
        "bits": _base64(np.packbits(point.texts[0].keep.ravel())),
        "by_part": _rounded(skipped_by(keep, part)),
        "by_kind": _rounded({kind: by_kind[kind] for kind in KINDS if kind in by_kind}),
        "by_layer": [[round(share, 4) for share in pair] for pair in skipped_by_layer(keep)],
    }


def _scores(scores: np.ndarray, tokens: int) -> dict[str, Any]:
    """The first text's scores as bytes: 0 to 254 within the range of each site, 255 for a missing score."""
    known = ~np.isnan(scores)
    # [L, 2]; infinite at a site without scores. `scaled` is -1 wherever a score is missing.
    low = np.where(known, scores, np.inf).min(axis=0)
    high = np.where(known, scores, -np.inf).max(axis=0)
    with np.errstate(invalid="ignore"):
        # The first text's scores, within the range over all texts.
        scaled = np.nan_to_num((scores[:tokens] - low) / np.maximum(high - low, 1e-12), nan=-1.0)
    levels = np.where(scaled < 0, 255, np.round(scaled * 254)).astype(np.uint8)
    ranges = [
        [float(ends[0]), float(ends[1])] if some else None
        for ends, some in zip(np.stack([low, high], axis=-1).reshape(-1, 2), known.any(axis=0).ravel(), strict=True)
    ]
    return {"bytes": _base64(levels), "ranges": ranges}


def _rounded(found: dict[str, tuple[int, float, float]]) -> dict[str, list[float]]:
    return {name: [count, round(attention, 4), round(mlp, 4)] for name, (count, attention, mlp) in found.items()}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def kinds_of(pieces: Sequence[str], token_ids: Sequence[int], ends: Collection[int]) -> list[str]:
    """The kind of each token of a text, one of `KINDS`, from the part of the text that each token stands for, the
    tokens, and the token ids that end a text.
    """
    words = _words_of(pieces)
    found = []
    for place, (piece, token, word) in enumerate(zip(pieces, token_ids, words, strict=True)):
        if place == 0:
            found.append("first")
        elif token in ends:
            found.append("end")
        else:
            found.append(_kind(piece.strip(), word))
    return found


def _kind(text: str, word: str | None) -> str:
    if not text:
        return "space"
    if word is not None:
        plain = _CONTRACTED.sub("", word.lower())
        return "digits" if word[0].isdecimal() else "function word" if plain in FUNCTION_WORDS else "other word"
    if all(letter in _OPERATORS for letter in text):
        return "operator"
    return "punctuation" if not any(letter.isalnum() for letter in text) and text.isprintable() else "other"


def _words_of(pieces: Sequence[str]) -> list[str | None]:
    """For each token, the word or number that contains its first letter, or `None`."""
    text = "".join(pieces)
    spans = [(match.start(), match.end(), match.group()) for match in _NUMBER_OR_WORD.finditer(text)]
    words: list[str | None] = []
    at = 0
    # Not strict: the last sum is the end of the text, where no piece starts.
    for start, piece in zip(accumulate(map(len, pieces), initial=0), pieces, strict=False):
        first = start + len(piece) - len(piece.lstrip())  # most tokenizers put a word's space before it
        # Both go forward, so spans that end before this piece are done with.
        while at < len(spans) and spans[at][1] <= first:
            at += 1
        inside = at < len(spans) and spans[at][0] <= first < spans[at][1] and bool(piece.strip())
        words.append(spans[at][2] if inside else None)
    return words


def scores_of(texts: Sequence[TextDecisions]) -> np.ndarray | None:
    """[N, L, 2] scores, NaN where a site has none; `None` if no text has scores."""
    found = [one.scores for one in texts]
    if all(each is None for each in found):
        return None
    blank = [np.full(one.keep.shape, np.nan, dtype=np.float32) for one in texts]
    return np.concatenate([other if each is None else each for each, other in zip(found, blank, strict=True)])


def skipped_by(keep: np.ndarray, groups: Sequence[str]) -> dict[str, tuple[int, float, float]]:
    """For each group of tokens, its size, and the shares of its attention and of its MLP branches that are skipped;
    `keep` is [N, L, 2].
    """
    names = np.asarray(groups)
    found = {}
    for name in dict.fromkeys(groups):
        one = keep[names == name]
        attention, mlp = (1.0 - one.mean(axis=(0, 1))).tolist()  # over tokens and layers
        found[name] = (len(one), attention, mlp)
    return found


def skipped_by_layer(keep: np.ndarray) -> list[tuple[float, float]]:
    """For each layer, the share of tokens that skip attention and the share that skip the MLP."""
    return [(float(attention), float(mlp)) for attention, mlp in 1.0 - keep.mean(axis=0)]
