"""What `adaptive-bench inspect --json` prints: what a page shows, and with `--paper` the gate analysis."""

from __future__ import annotations

from typing_extensions import TypedDict

SkipRates = tuple[int, float, float]  # tokens, and the shares of their attention and MLP branches that are skipped
Extreme = tuple[str, int, float]  # a vocabulary item, how often it occurs, and the mean over its occurrences


class InspectedPoint(TypedDict):
    """A method at one saving.

    Attributes:
        saved: Share of token-branches that is skipped.
        bits: Masks of the first text, [tokens, layers, 2], in base 64: eight decisions a byte, the first in the highest
            bit.
        by_part, by_kind, by_place: Skip rates of prompt and answer, of kinds of tokens, and of fifths of both.
        by_layer: Shares of tokens that skip attention, and MLP.
        top, bottom: Vocabulary items that run most, and fewest, of their branches.
    """

    dial: float
    saved: float
    bits: str
    by_part: dict[str, SkipRates]
    by_kind: dict[str, SkipRates]
    by_place: dict[str, SkipRates]
    by_layer: list[tuple[float, float]]
    top: list[Extreme]
    bottom: list[Extreme]


class Spread(TypedDict):
    """Median, 5th and 95th percentile."""

    low: float
    median: float
    high: float


class SiteScores(TypedDict):
    """Scores at one branch of one layer; `null` where there are none, or all are the same.

    Attributes:
        density: Heights at even distances over the range, 1 for the peak.
    """

    range: tuple[float, float] | None
    density: list[float] | None
    spread: Spread | None


class Scores(TypedDict):
    """What a method decides by.

    Attributes:
        bytes: Of the first text, [tokens, layers, 2], 0 to 254 over the range of each site, 255 for none; base 64.
        sites: Layer by layer attention and MLP.
        by_kind: Mean score of a kind of tokens at each site, [layers][2].
        top, bottom: Vocabulary items of the highest and lowest scores.
    """

    bytes: str
    sites: list[SiteScores]
    by_kind: dict[str, list[tuple[float | None, float | None]]]
    top: list[Extreme]
    bottom: list[Extreme]


class InspectedMethod(TypedDict):
    """A method.

    Attributes:
        dial_name: What its dial is called.
        unit: What it skips: branches, or whole layers.
        points: By saving.
        oracle: Masks of its exit oracle on the first text, as `bits`.
        exit: Mean exit of the oracle, in layers.
        scores: `null` where it has none.
    """

    spec: str
    dial_name: str
    unit: str
    semantics: str
    points: dict[str, InspectedPoint]
    oracle: str
    exit: float
    scores: Scores | None


class Agreement(TypedDict):
    """How much two methods decide alike, or a method and its oracle.

    Attributes:
        other: `null` for the oracle of `one`.
        alike: Share of token-branches.
        kappa, kappa_answer: Cohen's, of all tokens and of those of answers; `null` where chance agrees in all.
        rank: Spearman's correlation of how many branches each token runs; `null` where all run as many.
    """

    one: str
    other: str | None
    alike: float
    kappa: float | None
    rank: float | None
    kappa_answer: float | None


class Inspection(TypedDict):
    """Everything that a page shows.

    Attributes:
        schema: Version of this form.
        name, about: Of the model, and of the texts.
        texts, tokens: How many.
        prompt_tokens, pieces, names, kinds: Of the first text: tokens of its prompt; of each token its text, the same
            in visible signs, and its kind.
        kinds_by: What kinds are.
        agreement: By saving.
    """

    schema: int
    name: str
    about: str
    texts: int
    tokens: int
    layers: int
    prompt_tokens: int
    pieces: list[str]
    names: list[str]
    kinds: list[str]
    kinds_by: str
    savings: list[float]
    first_saving: float
    methods: list[InspectedMethod]
    agreement: dict[str, list[Agreement]]
    notes: list[str]


class Statement(TypedDict):
    """A statement of the paper beside ours.

    Attributes:
        place: Where the paper says it.
        agrees: `null` where that cannot be said, or holds in part.
    """

    place: str
    paper: str
    ours: str
    agrees: bool | None
    said: str


class AnalysedMethod(TypedDict):
    """A method with gates.

    Attributes:
        top: By saving the ten tokens with the highest gates.
    """

    spec: str
    statements: list[Statement]
    top: dict[str, list[Extreme]]


class GateAnalysis(TypedDict):
    """The gate analysis of the GateSkip paper on a model at hand."""

    source: str
    name: str
    tasks: list[str]
    texts: int
    tokens: int
    methods: list[AnalysedMethod]
