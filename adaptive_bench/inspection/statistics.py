"""Summarises decisions: skip rates by kind of token and by layer, distributions of scores, and kinds of tokens.

A token that is part of a word or number has the kind of the whole word or number, so that the tokenizer's cuts do not
matter. Function words are English.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from importlib.resources import files
from itertools import accumulate

import numpy as np

from adaptive_bench.model.text_decisions import TextDecisions

KINDS = ("first", "end", "digits", "operator", "punctuation", "function word", "other word", "space", "other")
_OPERATORS = frozenset("+-*/=<>×÷−·%^±≤≥≠≈")
_NUMBER_OR_WORD = re.compile(r"\d(?:[\d.,:]*\d)?|[^\W\d_]+(?:['’][^\W\d_]+)*")
_CONTRACTED = re.compile(r"(?:n['’]t|['’](?:s|m|d|re|ve|ll))$")  # `don't` is looked up as `do`, `it's` as `it`
# English closed word classes: articles, prepositions, pronouns, conjunctions, auxiliaries and question words.
FUNCTION_WORDS = frozenset(files(__package__).joinpath("function_words.txt").read_text(encoding="utf-8").split())


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


DENSITY_POINTS = 64


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


def by_vocabulary(values: np.ndarray, token_ids: Sequence[int]) -> list[tuple[int, int, float]]:
    """Each token of the vocabulary with its number of occurrences and the mean of their values [N], highest mean first;
    occurrences without a value (NaN) do not count.
    """
    gathered: dict[int, list[float]] = defaultdict(list)
    for token, value in zip(token_ids, values.tolist(), strict=True):
        if not np.isnan(value):
            gathered[token].append(value)
    found = [(token, len(each), float(np.mean(each))) for token, each in gathered.items()]
    return sorted(found, key=lambda item: -item[2])


def modes(values: np.ndarray, least: float = 0.05) -> list[float]:
    """The modes of a site's scores [N] (NaN if missing): where a Gaussian kernel density (Scott's rule) at 64 points
    from the lowest to the highest has peaks that reach the share `least` of the highest one. Empty for fewer than 3
    scores or if all are equal.
    """
    from scipy.signal import find_peaks
    from scipy.stats import gaussian_kde

    known = values[~np.isnan(values)].astype(np.float64)
    if len(known) < 3 or np.ptp(known) < 1e-12:
        return []
    points = np.linspace(known.min(), known.max(), DENSITY_POINTS)
    heights = gaussian_kde(known)(points)
    places, _ = find_peaks(np.pad(heights, 1), height=least * heights.max())  # padded, so that the ends have neighbours
    return [float(point) for point in points[places - 1]]
