"""Measured sweeps and trainings as plain values. A run reads them from its records, a board from an entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_bench.store.evaluation import MATCH_PHASES, SAVING_NAMES, Evaluation, Sample

LONGEST_TEXT = 1000  # characters
_SAME = 1e-6  # shares of saved tokens that are closer count as equal
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Documents:
    """The scores of the D documents of a measured point.

    Attributes:
        numbers: Indices of the documents.
        scores: Scores by metric, [D] each; NaN for a document without a score.
        log_likelihood, size_bytes: [D], log-likelihood and bytes of texts that were scored as a whole; NaN for other
            documents.
    """

    numbers: tuple[int, ...]
    scores: Mapping[str, Floats]
    log_likelihood: Floats
    size_bytes: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Documents:
        """Collect the scores from the samples of an evaluation."""
        # The text whose log-likelihood the output is; empty if the output is no log-likelihood.
        texts = [one.target if isinstance(one.output, float) and isinstance(one.target, str) else "" for one in samples]
        metrics = dict.fromkeys(metric for one in samples for metric in one.scores)
        return cls(
            tuple(one.doc for one in samples),
            {metric: _floats(one.scores.get(metric) for one in samples) for metric in metrics},
            _floats(one.output if text else None for one, text in zip(samples, texts, strict=True)),
            _floats(len(text.encode()) if text else None for text in texts),
        )


def _floats(values: Iterable[Any]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


@dataclass(frozen=True)
class Text:
    """The text written for one document at one point, with the right answer and whether the text is correct."""

    document: int
    target: str
    written: str
    correct: float | None

    @classmethod
    def of(cls, sample: Sample) -> Text:
        """Take the beginnings of the right answer and of the text from the sample of an evaluation."""
        return cls(sample.doc, str(sample.target)[:LONGEST_TEXT], str(sample.output)[:LONGEST_TEXT], sample.correct)


@dataclass(frozen=True)
class MeasuredPoint:
    """One method at one dial value on one task, in plain values.

    Attributes:
        attention_executed, mlp_executed: Share of tokens that executed the branch, by layer.
    """

    asked_saving: float  # share of tokens that it was asked to save
    dial: float
    seconds: float  # seconds inside model calls
    documents: Documents  # scores of single documents
    scores: Mapping[str, float]
    savings: Mapping[str, float]  # the known savings by name (see `saving_name`)
    flops: Mapping[str, float]  # the known FLOPs per token by phase
    bytes_per_token: float | None = None
    projected_shape: str | None = None
    attention_executed: Sequence[float] = ()
    mlp_executed: Sequence[float] = ()
    texts: Sequence[Text] = ()  # texts written for a few documents; empty if they are not wanted

    @classmethod
    def of(
        cls, asked: float, one: Evaluation, metrics: Sequence[str], samples: Sequence[Sample], shown: int = 0
    ) -> MeasuredPoint:
        """Make a point of an evaluation, with its scores in the given metrics, in that order, and the texts of the
        first `shown` documents.
        """
        saved = {name: one.saved(*known) for name, known in SAVING_NAMES.items()}
        flops = {phase: one.flops_per_token(phase) for phase in MATCH_PHASES}
        sites = one.report.get("sites", ())  # listed by layer
        attention, mlp = (
            [site["executed"] for site in sites if site["branch"] == branch] for branch in ("attention", "mlp")
        )
        return cls(
            asked,
            one.dial,
            one.time_s,
            Documents.of(samples),
            {metric: one.scores[metric] for metric in metrics if metric in one.scores},
            {name: value for name, value in saved.items() if value is not None},
            {phase: value for phase, value in flops.items() if value is not None},
            one.bytes_per_token,
            one.projected_shape,
            attention,
            mlp,
            [Text.of(sample) for sample in samples[:shown]],
        )


@dataclass(frozen=True)
class TimeCurve:
    """Saved time over saved tokens of one method in one setting.

    Attributes:
        points: Pairs (saved tokens, saved time), rising in saved tokens; no value of saved tokens occurs twice.
        plain_ms: Milliseconds per new token of the plain model: total time of a batch, reading of prompts included,
            over the new tokens of all its rows. `None` if the timing does not say.
    """

    points: tuple[tuple[float, float], ...]
    plain_ms: float | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]], plain_ms: float | None = None) -> TimeCurve:
        """Make a curve of points in any order; points with the same saved tokens are averaged."""
        grouped = groupby(sorted(pairs), key=lambda pair: round(pair[0] / _SAME))
        same = [list(group) for _, group in grouped]
        return cls(tuple((fmean(x for x, _ in group), fmean(y for _, y in group)) for group in same), plain_ms)

    def at(self, saved_tokens: float) -> float | None:
        """Return the saved time at a share of saved tokens, interpolated; `None` outside of the timed range."""
        for x, y in self.points:
            if abs(x - saved_tokens) <= _SAME:
                return y
        for (x, y), (next_x, next_y) in pairwise(self.points):
            if x < saved_tokens < next_x:
                share = (saved_tokens - x) / (next_x - x)
                return y * (1 - share) + next_y * share
        return None


@dataclass(frozen=True)
class MeasuredTraining:
    """One training: what it cost, what it aimed at, and its log.

    Attributes:
        cost: `tokens`, `flops` and `parameters_added`, without those of its base; `None` if they are not known.
        target: For a training towards a saving: `axis` and `saving`; what its dial was found to save at the end
            of training, as `tokens` and by axis in `priced`; and `whole_layers`, whether it skips whole layers.
        steps, losses: [S] each, the log of the training.
    """

    key: str  # name of the training, unique within a run
    method: str
    seed: int
    base: MeasuredTraining | None = None  # the training that it starts from, if any
    cost: Mapping[str, float] | None = None
    target: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # further facts, for the reader
    steps: Sequence[int] = ()
    losses: Sequence[float] = ()


@dataclass(frozen=True)
class MeasuredSweep:
    """One seed of a method, trained towards one target, measured over its dial on one task."""

    method: str
    task: str
    seed: int
    training: MeasuredTraining
    target: float | None  # saving that it was trained towards, if its method was trained towards several
    split: str  # `test`, or `validation` for documents that targets are chosen on
    variant: str  # `shuffled` for the control of shuffled decisions, else empty
    levels: tuple[float, ...]  # savings to match at
    conditions: Mapping[str, Any]  # conditions under which it is comparable, see `tables.comparability.Conditions`
    made_with: str  # versions and devices that it was made with
    eligible: str | None  # where tokens may skip, in words
    documents_sha256: str | None  # digest of the documents and their right answers
    points: Sequence[MeasuredPoint]  # measured points, rising in the saving they were asked for
    curves: Mapping[str, TimeCurve] = field(default_factory=dict)  # saved time by setting


@dataclass(frozen=True)
class Measurements:
    """Everything that a run has measured.

    Attributes:
        sweeps: The measured sweeps, in the order in which they were made.
        trainings: The trainings, each after the training it starts from.
    """

    sweeps: Sequence[MeasuredSweep]
    trainings: Sequence[MeasuredTraining]
