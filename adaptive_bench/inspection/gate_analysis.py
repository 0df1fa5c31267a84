"""Repeats the gate analysis of the GateSkip paper on a given model: each of the paper's statements beside ours.

The statements are those of the appendix "Qualitative Analysis of Gate Values". The paper's model is Llama-3.2-1B with
16 layers, in part of the analysis with gates shared by all layers. A statement about layer 13, or about layers 6 to 9,
is tested on the layers at the same relative depth. The heat map of a prompt that a model should refuse is not repeated,
since one sentence gives no statistic.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from adaptive_bench.errors import UsageError
from adaptive_bench.headroom.named_models import Subjects
from adaptive_bench.inspection.readings import Inspection, Point, Reading, Text, inspect_texts, kinds_of, scores_of
from adaptive_bench.model.text_decisions import visible

SOURCE = "The gate analysis of the GateSkip paper (appendix, Llama-3.2-1B)"
SAVINGS = (0.0, 0.3)  # the paper's two runs
_PAPER_LAYERS = 16
_PAPER_SPAN = 0.02  # distance from the first mode to the last
_ABSENT = "the texts have none, or nothing else"
DENSITY_POINTS = 64
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
        gated = [reading for reading in inspection.readings if _has_gates(reading)]
        methods = [_analysed(reading, inspection, subjects.tokenizer.bos_token_id) for reading in gated]
    if not methods:
        specs = ", ".join(reading.spec for reading in inspection.readings)
        raise UsageError(
            f"The paper analyses gates, values between 0 and 1 that scale a branch, but {specs} has none. Name a "
            f"method with gates by --methods, such as gateskip."
        )
    return {
        "source": SOURCE,
        "name": inspection.name,
        "tasks": list(tasks),
        "texts": len(texts),
        "tokens": sum(len(one.pieces) for one in inspection.texts),
        "methods": methods,
    }


def _has_gates(reading: Reading) -> bool:
    scores = scores_of(reading.points[0].texts)
    return scores is not None and bool(np.nanmin(scores) >= 0 and np.nanmax(scores) <= 1)


def _analysed(reading: Reading, inspection: Inspection, start: int | None) -> dict[str, Any]:
    full = reading.points[0]
    # [N, L, 2], over the tokens of all texts; last comes attention, then the MLP. Float64, since claims are about
    # differences of 0.001.
    scores = _gates(full).astype(np.float64)
    groups = np.asarray([kind for one in full.texts for kind in kinds_of(one.pieces, one.token_ids, inspection.ends)])
    # The smallest saving and the largest up to the paper's 30 %.
    points = [point for point in reading.points if point.saving <= SAVINGS[1] + 1e-9] or [full]
    chosen = {f"{point.saving:g}": point for point in (points[0], points[-1])}
    beginnings = [_beginning(point, start) for point in chosen.values()]
    statements = [*_on_words(scores, groups), *beginnings, *_on_kinds(scores, groups), *_on_densities(scores)]
    # A token's text can differ with its surroundings; the last one is shown.
    names = {token: piece for one in full.texts for token, piece in zip(one.token_ids, one.pieces, strict=True)}
    top = {
        key: [[visible(names[token]), count, value] for token, count, value in _ranked(point)[:10]]
        for key, point in chosen.items()
    }
    return {"spec": reading.spec, "statements": statements, "top": top}


def _gates(point: Point) -> np.ndarray:
    scores = scores_of(point.texts)
    assert scores is not None  # methods without gates are left out
    return scores


def _ranked(point: Point) -> list[tuple[int, int, float]]:
    """Tokens of the vocabulary, ranked by their mean gate over layers and occurrences; see `by_vocabulary`."""
    means = np.asarray(np.nanmean(_gates(point), axis=(1, 2), dtype=np.float64))
    return by_vocabulary(means, [token for one in point.texts for token in one.token_ids])


def _beginning(point: Point, start: int | None) -> _Statement:
    place = f"top-10 tokens at {100 * point.saving:g} % skipping"
    paper = "the BOS token has the highest mean gate, about 0.01 ahead of the next; later margins are below 0.001"
    ids, _, values = zip(*_ranked(point), strict=True)
    if start not in ids:
        return _stated(place, paper, "texts begin without a BOS token", None)
    at = ids.index(start)
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
    lowest, highest = np.nanmin(attention), np.nanmax(attention)
    ours = f"attention's mean gate is {attention[0]:.4f} in layer 0 and {lowest:.4f} to {highest:.4f} in all"
    paper = "layer 0 has the highest attention gates of all layers"
    yield _stated("token types by layer", paper, ours, attention[0] == highest)

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
        yield _stated(place, paper, _ABSENT, None)

    place = "token types by layer"
    paper = "numbers have higher attention gates than other tokens in the middle layers (6 to 9 of 16)"
    chosen = groups == "digits"
    if chosen.any() and not chosen.all():
        middle = _at_height(range(6, 10), scores.shape[1])
        gap = _mean(scores[chosen][:, middle, 0]) - _mean(scores[~chosen][:, middle, 0])
        ours = f"numbers less other tokens in layers {', '.join(map(str, middle))}: {gap:+.4f}"
        yield _stated(place, paper, ours, gap > 0)
    else:
        yield _stated(place, paper, _ABSENT, None)

    means = np.nanmean(scores, axis=0)  # [L, 2]
    attention, mlp = np.nanmax(means, axis=0) - np.nanmin(means, axis=0)
    levels = [_mean(means[:, branch]) for branch in (0, 1)]
    ours = (
        f"layer means range over {mlp:.4f} in MLP and {attention:.4f} in attention; their means are {levels[1]:.4f} "
        f"and {levels[0]:.4f}"
    )
    paper = "MLP gates are uniformly high, other than attention's"
    yield _stated(place, paper, ours, mlp < attention and levels[1] > levels[0])


def _on_densities(scores: np.ndarray) -> Iterator[_Statement]:
    (layer,) = _at_height([13], scores.shape[1])
    paper = "attention layer 13: three modes, at 0.685, 0.692 and 0.702, within 0.02"
    gates = scores[:, layer, 0]
    if found := modes(gates):
        shown = ", ".join(f"{mode:.3f}" for mode in found)
        ends = f"{np.nanmin(gates):.3f} to {np.nanmax(gates):.3f}"
        ours = f"attention layer {layer}: {len(found)} at {shown}; gates from {ends}"
        yield _stated("density", paper, ours, len(found) > 1 and found[-1] - found[0] <= _PAPER_SPAN)
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
