"""The record of `adaptive-bench headroom --json`. Scores are in the metric's unit; of shares 1 is all."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from adaptive_bench.cli.schemas.compute import SavedShares
from adaptive_bench.headroom.static_sets import LayerSet
from adaptive_bench.method import KVPolicy


class Model(TypedDict):
    """The model that was looked at."""

    name: str
    fingerprint: str
    layers: int


class Settings(TypedDict):
    """What was asked for; `null` levels and worked examples are each task's own."""

    levels: list[float] | None
    limit: int | None
    seed: int
    num_fewshot: int | None
    kv: KVPolicy


class DenseScore(TypedDict):
    """Of the full model, with its 95 % interval; no ends where there is a single score."""

    score: float
    low: float | None
    high: float | None


class DenseAgain(TypedDict):
    """What a maximum over so many askings of the full model gains by luck alone."""

    askings: int
    mean: float
    maximum: float


class StaticSet(TypedDict):
    """Layers that are left out for everybody.

    Attributes:
        skipped: Their numbers.
        saved: Net FLOPs.
        validation, test: Scores; of test documents one for each asking.
        scores: [askings][documents].
        answers_agree: Share of answers that are the full model's; `null` where they cannot be compared.
    """

    skipped: list[int]
    saved: float
    validation: float
    test: list[float]
    scores: list[list[float]]
    answers_agree: list[float] | None


class Gain(TypedDict):
    """A difference with its 95 % interval, positive where the oracle is better; `null` for a single pair of scores."""

    difference: float
    low: float | None
    high: float | None
    p: float | None
    holds_0: bool


class ReachedLevel(TypedDict):
    """A net saving that leaving out layers reaches.

    Attributes:
        static: Score of the best static mixture, and its weights over `sets`.
        gold, agreement, chance_gold: Oracles that choose a set for each document: by its score, by whether its answer
            is the full model's, and by scores dealt out at random.
        cross_fitted, cross_fitted_gold: The same, chosen by one asking and scored by another; `null` for one asking.
        in_sample: Of `gold`. headroom: Of the cross-fitted oracle. headroom_of_exits: Of the attainable exit oracle,
            where it saves so much.
    """

    level: float
    reached: Literal[True]
    static: float
    static_weights: list[float]
    gold: float
    agreement: float | None
    cross_fitted: float | None
    cross_fitted_gold: float | None
    chance_gold: float
    in_sample: Gain
    headroom: Gain | None
    headroom_of_exits: Gain | None


class MissedLevel(TypedDict):
    """A net saving that leaving out layers does not reach."""

    level: float
    reached: Literal[False]


class Depth(TypedDict):
    """Mean exits in layers, and what they come to.

    Attributes:
        first, stable, lucky: After the first layer that predicts the token, that predicts it from there on, and the
            first that predicts another position's.
        saved_passes: Share of layer passes that stable exits need not make.
        speculation_passes: Passes a token of ideal self-speculation.
    """

    first: float
    stable: float
    lucky: float
    saved_passes: float
    speculation_passes: float


class Replay(TypedDict):
    """Exits replayed on the text; agreement is the share of predictions that are the full model's."""

    agreement: float
    saved: SavedShares


class DeferredReplay(TypedDict):
    """The same with everybody who leaves waiting before one layer."""

    waits_before: int
    agreement: float
    saved: SavedShares


class Subsets(TypedDict):
    """The smallest subset of layers that predicts each of some tokens: mean number of layers kept."""

    tokens: int
    kept: float
    saved_passes: float


class OnlineExits(TypedDict):
    """The attainable exit oracle beside the best static mixture that saves as much; `null` where none does."""

    saved: float
    score: float
    agreement: float | None
    static: float | None
    headroom: Gain | None


class ExitOracle(TypedDict):
    """Early exits on the dense text.

    Attributes:
        kv: What tokens that left early leave in the layers above.
        replayed, shuffled: Stable exits, and the same given to other tokens.
        similarity: Mean cosine of the residual stream after each layer with the last.
        suitability: By alpha.
        subsets: `null` for models of many layers.
    """

    layers: int
    tokens: int
    depth: Depth
    deferred: DeferredReplay
    kv: KVPolicy
    replayed: Replay
    shuffled: Replay
    similarity: list[float]
    suitability: dict[str, float]
    subsets: Subsets | None
    online: OnlineExits


class Dominance(TypedDict):
    """The largest site's divergence over the median site's; `null` where that is 0."""

    everywhere: float | None
    answers: float | None


class DominanceOfBoth(TypedDict):
    """With a share of the tokens skipping, and with all."""

    share: Dominance
    all: Dominance


class SiteDivergence(TypedDict):
    """Over all tokens, and over those that predict answers."""

    everywhere: float
    answers: float


class SiteRow(TypedDict):
    """KL in nats from the full model where a branch of a layer is skipped by a share of the tokens, and by all."""

    layer: int
    branch: Literal["attention", "mlp"]
    share: SiteDivergence
    all: SiteDivergence


class Sites(TypedDict):
    """What every site is worth."""

    dominance: DominanceOfBoth
    rows: list[SiteRow]


class TaskRecord(TypedDict):
    """One task.

    Attributes:
        chance: Score of a guess; `null` where there is none.
        asked_once: Why there is one asking; `null` where there are several.
        dense_again: `null` for one asking.
        asking_changes: How much the score of a document moves between askings; `null` for one.
        crossed_by: What the cross-fitted oracle chooses by.
        finalists: Sets by number of layers left out, nearest to the full model first.
    """

    task: str
    metric: str
    better: Literal["higher", "lower"]
    unit: Literal["share", "number"]
    chance: float | None
    documents: int
    asked_once: str | None
    dense: DenseScore
    dense_again: DenseAgain | None
    asking_changes: float | None
    sets: list[StaticSet]
    crossed_by: Literal["agreement", "gold"]
    levels: list[ReachedLevel | MissedLevel]
    exit_oracle: ExitOracle
    sites: Sites
    finalists: list[list[LayerSet]]


class HeadroomRecord(TypedDict):
    """Everything measured.

    Attributes:
        version: Of the record's form.
        share_skipping: Share of the tokens that skips a site.
    """

    kind: Literal["headroom"]
    version: int
    model: Model
    settings: Settings
    share_skipping: float
    tasks: list[TaskRecord]
