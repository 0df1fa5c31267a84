"""Repeats the gate analysis of the GateSkip paper on a given model: each of the paper's statements beside ours.

The statements are those of the appendix "Qualitative Analysis of Gate Values". The paper's model is Llama-3.2-1B with
16 layers, in part of the analysis with gates shared by all layers. A statement about layer 13, or about layers 6 to 9,
is tested on the layers at the same relative depth. The heat map of a prompt that a model should refuse is not repeated,
since one sentence gives no statistic.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.inspection import statistics
from adaptive_bench.inspection.readings import Inspection, Point, Reading, Text, inspect_texts
from adaptive_bench.inspection.statistics import kinds_of
from adaptive_bench.model.text_decisions import visible

SOURCE = "The gate analysis of the GateSkip paper (appendix, Llama-3.2-1B)"
SAVINGS = (0.0, 0.3)  # the paper's two runs
_PAPER_LAYERS = 16
_PAPER_SPAN = 0.02  # distance from the first mode to the last
_Statement = dict[str, Any]


def gate_analysis(subjects: Subjects, texts: Sequence[Text], tasks: Sequence[str]) -> dict[str, Any]:
    """The analysis of each method with gates, as plain values; a `UsageError` if none has (scores between 0 and 1).

    Each of the `methods` has its `spec`, the `statements`, and `top`: for each saving, the ten tokens with the highest
    gates. A statement has its `place` in the paper, what the `paper` says, `ours`, and whether it `agrees` (`None` if
    that cannot be told, or holds in part).
    """
    inspection = inspect_texts(subjects, texts, None, about=", ".join(tasks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns of the mean of a site without gates
        methods = [_analysed(reading, inspection, subjects) for reading in inspection.readings if _has_gates(reading)]
    if not methods:
        specs = ", ".join(reading.spec for reading in inspection.readings)
        raise UsageError(
            f"The paper analyses gates, values between 0 and 1 that scale a branch, but {specs} has none. Name a "
            f"method with gates by --methods, such as gateskip."
        )
    count = sum(len(one.pieces) for one in inspection.texts)
    return {
        "source": SOURCE,
        "name": inspection.name,
        "tasks": list(tasks),
        "texts": len(texts),
        "tokens": count,
        "methods": methods,
    }


def _has_gates(reading: Reading) -> bool:
    scores = statistics.scores_of(reading.points[0].texts)
    return scores is not None and bool(np.nanmin(scores) >= 0 and np.nanmax(scores) <= 1)


def _analysed(reading: Reading, inspection: Inspection, subjects: Subjects) -> dict[str, Any]:
    full = reading.points[0]
    scores = statistics.scores_of(full.texts)
    assert scores is not None
    # [N, L, 2], over the tokens of all texts; last comes attention, then the MLP. Float64, since claims are about
    # differences of 0.001.
    scores = scores.astype(np.float64)
    kinds = [kind for one in full.texts for kind in kinds_of(one.pieces, one.token_ids, inspection.ends)]
    groups = np.asarray(kinds)
    start = subjects.tokenizer.bos_token_id
    # The smallest saving and the largest up to the paper's 30 %.
    points = [point for point in reading.points if point.saving <= SAVINGS[1] + 1e-9] or [full]
    chosen = {f"{point.saving:g}": point for point in (points[0], points[-1])}
    beginnings = [_beginning(point, start) for point in chosen.values()]
    statements = [*_on_words(scores, groups), *beginnings, *_on_kinds(scores, groups), *_on_densities(scores)]
    top = {
        key: [[visible(name), count, value] for name, count, value in _ranked(point)[0][:10]]
        for key, point in chosen.items()
    }
    return {"spec": reading.spec, "statements": statements, "top": top}


def _ranked(point: Point) -> tuple[list[tuple[str, int, float]], list[int]]:
    """Vocabulary items, ranked by their mean gate over layers and occurrences, and their token ids."""
    scores = statistics.scores_of(point.texts)
    assert scores is not None
    ids = [token for one in point.texts for token in one.token_ids]
    # A token's text can differ with its surroundings; the last one is shown.
    names = {token: piece for one in point.texts for token, piece in zip(one.token_ids, one.pieces, strict=True)}
    means = np.asarray(np.nanmean(scores, axis=(1, 2), dtype=np.float64))
    ranked = statistics.by_vocabulary(means, ids)
    return [(names[token], count, value) for token, count, value in ranked], [token for token, *_ in ranked]


def _beginning(point: Point, start: int | None) -> _Statement:
    place = f"top-10 tokens at {100 * point.saving:g} % skipping"
    paper = "the BOS token has the highest mean gate, about 0.01 ahead of the next; later margins are below 0.001"
    ranked, ids = _ranked(point)
    if start not in ids:
        return _stated(place, paper, "texts begin without a BOS token", None)
    at = ids.index(start)
    values = [value for *_, value in ranked]
    others = values[:at] + values[at + 1 :]  # still in falling order
    margin = values[at] - others[0] if others else float("nan")
    later = max((one - other for one, other in pairwise(others[:10])), default=float("nan"))
    ours = (
        f"BOS is number {at + 1} of {len(ids)}, {margin:+.4f} to the best other; the largest margin among the next ten "
        f"is {later:.4f}"
    )
    return _stated(place, paper, ours, at == 0 and margin > later)


def _on_words(scores: np.ndarray, groups: np.ndarray) -> Iterator[_Statement]:
    layers = scores.shape[1]
    halves = slice(0, layers // 2), slice(layers // 2, None)

    paper = "function words have lower gates than content words, more so in later layers"
    function, content = groups == "function word", groups == "other word"
    if function.any() and content.any():
        lower, upper = (_mean(scores[function][:, half]) - _mean(scores[content][:, half]) for half in halves)
        ours = (
            f"function words less other words: {lower:+.4f} in the lower half of the layers, {upper:+.4f} in the upper"
        )
        yield _stated("heat map", paper, ours, upper < lower and upper < 0)
    else:
        yield _stated("heat map", paper, "one of the two kinds is not in the texts", None)

    attention = [_mean(scores[:, layer, 0]) for layer in range(layers)]
    known = [value for value in attention if not np.isnan(value)]
    ours = f"attention's mean gate is {attention[0]:.4f} in layer 0 and {min(known):.4f} to {max(known):.4f} in all"
    paper = "layer 0 has the highest attention gates of all layers"
    yield _stated("token types by layer", paper, ours, attention[0] == max(known))

    lower, upper = (_mean(np.nanstd(scores[:, half], axis=0)) for half in halves)
    ours = f"standard deviation over tokens: {lower:.4f} in the lower half of layers, {upper:.4f} in the upper"
    yield _stated("heat map", "deeper layers are more selective", ours, upper > lower)


def _on_kinds(scores: np.ndarray, groups: np.ndarray) -> Iterator[_Statement]:
    place, paper = "heat map", "punctuation has exceptionally high gates in all layers"
    chosen = groups == "punctuation"
    if chosen.any() and not chosen.all():
        gaps = np.nanmean(scores[chosen], axis=0) - np.nanmean(scores[~chosen], axis=0)  # [L, 2]
        above, sites = int((gaps > 0).sum()), int((~np.isnan(gaps)).sum())
        ours = f"above the other tokens' mean at {above} of {sites} sites, {_mean(gaps):+.4f} in the mean"
        yield _stated(place, paper, ours, above == sites)
    else:
        yield _stated(place, paper, "the texts have none, or nothing else", None)

    place = "token types by layer"
    paper = "numbers have higher attention gates than other tokens in the middle layers (6 to 9 of 16)"
    chosen = groups == "digits"
    if chosen.any() and not chosen.all():
        middle = _at_height(range(6, 10), scores.shape[1])
        gap = _mean(scores[chosen][:, middle, 0]) - _mean(scores[~chosen][:, middle, 0])
        yield _stated(
            place, paper, f"numbers less other tokens in layers {', '.join(map(str, middle))}: {gap:+.4f}", gap > 0
        )
    else:
        yield _stated(place, paper, "the texts have none, or nothing else", None)

    means = np.nanmean(scores, axis=0)  # [L, 2]
    ranges = [float(np.nanmax(means[:, branch]) - np.nanmin(means[:, branch])) for branch in (0, 1)]
    levels = [_mean(means[:, branch]) for branch in (0, 1)]
    ours = (
        f"layer means range over {ranges[1]:.4f} in MLP and {ranges[0]:.4f} in attention; their means are "
        f"{levels[1]:.4f} and {levels[0]:.4f}"
    )
    paper = "MLP gates are uniformly high, other than attention's"
    yield _stated(place, paper, ours, ranges[1] < ranges[0] and levels[1] > levels[0])


def _on_densities(scores: np.ndarray) -> Iterator[_Statement]:
    (layer,) = _at_height([13], scores.shape[1])
    paper = "attention layer 13: three modes, at 0.685, 0.692 and 0.702, within 0.02"
    gates = scores[:, layer, 0]
    if modes := statistics.modes(gates):
        shown = ", ".join(f"{mode:.3f}" for mode in modes)
        ends = f"{np.nanmin(gates):.3f} to {np.nanmax(gates):.3f}"
        ours = f"attention layer {layer}: {len(modes)} at {shown}; gates from {ends}"
        yield _stated("density", paper, ours, len(modes) > 1 and modes[-1] - modes[0] <= _PAPER_SPAN)
    else:
        yield _stated("density", paper, f"layer {layer} has no spread of gates", None)

    least, low_share = float(np.nanmin(scores)), float((scores[~np.isnan(scores)] < 0.1).mean())
    ours = f"a token's lowest mean gate is {least:.4f}; {100 * low_share:.1f} % are below 0.1"
    yield _stated("density", "no gates collapse to 0", ours, low_share == 0)

    # What one cut for all layers would skip. The paper's statement holds in part if layers differ less than there.
    medians = np.nanmedian(scores, axis=0)
    steps = np.abs(np.diff(medians, axis=0))  # [L - 1, 2]
    cut = np.nanquantile(scores, SAVINGS[1])
    # Sites without gates are left out: a NaN is below no cut.
    shares = (scores < cut).mean(axis=0)[~np.isnan(medians)]
    lowest, highest = round(100 * shares.min()), round(100 * shares.max())
    ours = (
        f"medians of neighbouring layers differ by {float(np.nanmedian(steps)):.4f} in the median; one cut for all "
        f"that skips 30 % would skip {lowest} to {highest} % of a site's tokens"
    )
    paper = "layers differ by 0.002 to 0.005, so that one cut for all would skip all tokens of some and none of others"
    yield _stated("density of all layers", paper, ours, True if (lowest, highest) == (0, 100) else None)


def _stated(place: str, paper: str, ours: str, agrees: bool | None) -> _Statement:
    return {"place": place, "paper": paper, "ours": ours, "agrees": None if agrees is None else bool(agrees)}


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _at_height(of_paper: Sequence[int], layers: int) -> list[int]:
    """The layers at the same relative depth as some of the paper's 16 layers."""
    return list(dict.fromkeys(min(layers - 1, layer * layers // _PAPER_LAYERS) for layer in of_paper))
