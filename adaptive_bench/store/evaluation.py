"""The results of one evaluation: scores, measured savings and time, and one sample per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import numpy as np

Axis = Literal["tokens", "core", "net", "layers", "claimed", "projected", "bytes"]
COUNTED: tuple[Axis, ...] = ("tokens", "core", "net", "layers")  # axes that the ledger counts in every phase
AXES: tuple[Axis, ...] = get_args(Axis)
MatchPhase = Literal["all", "prefill", "decode"]
MATCH_PHASES: tuple[MatchPhase, ...] = ("all", "prefill", "decode")
PHASES = MATCH_PHASES[1:]


def saving_name(axis: Axis, phase: MatchPhase = "all") -> str:
    """Return the name of a saving among those of a point: `net` for all phases, `decode_net` for one phase."""
    return axis if phase == "all" else f"{phase}_{axis}"


SAVING_NAMES = {saving_name(axis, phase): (axis, phase) for phase in MATCH_PHASES for axis in AXES}  # all, by name


@dataclass(frozen=True)
class Evaluation:
    """The results of one method at one dial value on one task.

    Attributes:
        dial: Dial value of the method, in its own unit.
        scores: lm-eval metric key to value.
        docs: Documents evaluated.
        savings: Pooled shares saved of the dense model: `tokens`, `core`, `net`, `layers`, `executed`; they may be
            negative.
        report: The whole compute report of the model: savings by phase, and the raw sums. `decode` counts tokens fed
            one by one while an answer is written; `prefill` counts tokens read in one pass: prompts, and the given
            answers of log-likelihood tasks, which have no `decode`.
        time_s: Seconds inside model calls, without scoring and tokenizing.
        prompt_tokens: Tokens fed to the model, without padding.
        generated_tokens: Tokens the model wrote.
        batch_size: Sequences evaluated together, after any halving.
        num_fewshot: Worked examples before each question.
        claimed: Share of token-branches that the method's dial says it skips, in any phase; `None` if the dial says
            nothing.
        projected: By phase, the net saving that the same decisions would have on the model shape `projected_shape`;
            known only while a table is made (`runs.projection`).
        data: Where the documents came from (`source`, `revision` of the hub); digests of the documents, of their right
            answers and of the prompts made from them; the version of the task, signatures of its metrics, and the
            digest of the chat template if there is one.
        stored: For a quantized model, the bytes of each layer as stored, in lists [L]: `attention`, `kv` (its part for
            the K,V maps) and `mlp`; otherwise `None`.
    """

    task: str
    dial: float
    scores: Mapping[str, float]
    docs: int
    savings: Mapping[str, float]
    report: Mapping[str, Any] = field(repr=False)
    time_s: float
    prompt_tokens: int
    generated_tokens: int
    batch_size: int
    num_fewshot: int
    fewshot_seed: int
    claimed: float | None = None
    projected: Mapping[str, float | None] | None = None
    projected_shape: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] | None = None

    def saved(self, axis: Axis, phase: MatchPhase = "all") -> float | None:
        """Return the share saved on an axis in a phase; `None` if it is not known or the phase has no tokens."""
        if axis == "claimed":
            return self.claimed if phase == "all" else None
        if axis == "projected":
            return None if self.projected is None else self.projected.get(phase)
        if axis == "bytes":
            found = self.token_bytes if phase == "all" else None
            return None if found is None else 1 - found.read / found.dense
        saved: Mapping[str, float | None] = self.savings if phase == "all" else self.report.get(phase, {})
        return saved.get(axis)

    @cached_property
    def token_bytes(self) -> TokenBytes | None:
        """Bytes read per written token at batch size 1, by this model and by the dense model in fp32; `None` if nothing
        was written, or if the counts do not tell (see `token_bytes`).
        """
        return token_bytes(self.report.get("counts", {}), self.stored)

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes that this model reads per written token; `None` if that is not known."""
        return None if self.token_bytes is None else self.token_bytes.read

    def flops_per_token(self, phase: MatchPhase = "all") -> float | None:
        """Return the mean FLOPs of a token fed in a phase, with everything that the method adds: the dense model's
        FLOPs for the same tokens, two per multiply-accumulate, times 1 - net saving. `None` if the phase has no tokens,
        or if the record has no counts.
        """
        counts, saved = self.report.get("counts"), self.saved("net", phase)
        if counts is None or saved is None:
            return None
        parts = [counts[one] for one in (PHASES if phase == "all" else (phase,))]
        tokens = sum(part["tokens"] for part in parts)
        return (1 - saved) * 2 * sum(sum(part["dense_macs"]) for part in parts) / tokens if tokens else None

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `json.dump`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_json` gave; further keys are ignored."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


@dataclass(frozen=True)
class Sample:
    """One document of an evaluation.

    Attributes:
        answers: The answer that each filter extracted from the output (`strict-match: "42"`); empty for
            log-likelihood tasks.
        scores: lm-eval metric key to the value of this document, for metrics whose value is a number.
        prompt: The prompt given to the model. It is the same at every dial value, so it is stored only for the
            point with saving 0.
    """

    doc: int  # index of the document in the evaluated split
    target: Any  # the right answer as the task defines it
    output: str | int | float  # the written text, or the index of the best choice, or a log-likelihood
    answers: Mapping[str, str]
    scores: Mapping[str, float]
    correct: float | None  # the headline metric of this document, `None` if it is not a number
    prompt: str | None = None
    choices: tuple[str, ...] = ()  # the continuations that were scored, if there were several; stored like the prompt

    def to_json(self, *, with_prompt: bool = True) -> dict[str, Any]:
        """Return plain values, ready for one line of JSON."""
        values = asdict(self)
        if not with_prompt:
            del values["prompt"], values["choices"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sample:
        """Read back what `to_json` gave."""
        return cls(**dict(values) | {"choices": tuple(values.get("choices", ()))})


BUCKETS = (
    "core.attn_q_o",
    "core.attn_kv",
    "core.attn_mix",
    "core.mlp",
    "core.head",
    "overhead.decision",
    "overhead.kv_repair",
    "overhead.adapter",
    "waste.dense",
)
COSINE, NORM, RESCALE = "cosine", "norm", "rescale"  # kinds of computation that read no weights
_NUMBER_BYTES = 4  # weights and K,V are fp32 in evaluation
_SAME = 1e-9


class Work:
    """Columns that count what one layer executed, in tokens and (query, key) pairs, not MACs.

    `*_eligible`: tokens that could execute the branch; `*_kept`: tokens that did; `*_slots`: tokens that went through
    its linear maps (for attention: q and o); `*_reads`: calls in which at least one token did (`kv_reads`: calls in
    which K,V were projected but no token attended). `projected`: slots of the k and v maps; `repaired`: tokens that
    skipped but still left K,V; `seen`: pairs that the semantics need; `pairs`: pairs that were executed; `dense_*`:
    what the dense model needs.
    """

    COLUMNS = 15
    ATTENTION_ELIGIBLE, ATTENTION_KEPT, ATTENTION_SLOTS, ATTENTION_READS = range(4)
    MLP_ELIGIBLE, MLP_KEPT, MLP_SLOTS, MLP_READS = range(4, 8)
    PROJECTED, REPAIRED, SEEN, PAIRS, DENSE_TOKENS, DENSE_PAIRS, KV_READS = range(8, 15)


class TokenBytes(NamedTuple):
    """Bytes read per decoded token when a single text is written (batch size 1), mean over the tokens.

    Attributes:
        read: Bytes read by the model as it was measured: the weights of the branches that the token executes, of the
            K,V maps if it skips attention but still leaves K,V, of the method's own maps and of the head, and the K,V
            of the keys it sees. Activations, embeddings, norms and written bytes are left out.
        dense: Bytes read by the dense model in fp32.
    """

    read: float
    dense: float


def token_bytes(counts: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> TokenBytes | None:
    """Compute the bytes that a decoded token reads from the counts behind the MACs. A linear map multiplies each of its
    weights once per token, so its MACs per token equal its number of weights.

    Args:
        counts: The counts of a compute report.
        stored: See `Evaluation`; without it all weights are fp32.

    Returns:
        `None` if no token was decoded, or if the sizes cannot be derived: older records without counts, layers of
        different sizes, or a branch that no token executed in any layer.
    """
    import numpy as np  # imported here, so that help texts and lists appear faster

    if not counts or any("work" not in counts.get(phase, {}) for phase in ("prefill", "decode")):
        return None
    part, tokens = counts["decode"], counts["decode"]["tokens"]
    sizes = _sizes(counts)
    if not tokens or sizes is None:
        return None
    # With hidden size H, A heads, K heads of K,V and D numbers a head: q_o = 2HAD, kv = 2HKD and pair = 2AD MACs.
    q_o, kv, pair, mlp = sizes
    hidden = q_o / pair
    # Counts [columns, L], and MACs by bucket, summed over the layers and the head.
    work, macs = np.array(part["work"]).T, np.array(part["macs"]).sum(axis=0)
    keys = kv / hidden  # numbers that one key has in K and V together
    runs = part["runs"]
    per_state = 3 * runs.get(COSINE, 0.0) + runs.get(NORM, 0.0) + runs.get(RESCALE, 0.0)  # a cosine has two norms
    weightless = hidden * per_state
    by_name = dict(zip(BUCKETS, macs.tolist(), strict=True))
    # What reads weights outside the branches.
    beside = by_name["core.head"] + by_name["overhead.decision"] + by_name["overhead.adapter"] - weightless
    sizes_read = {"attention": q_o + kv, "kv": kv, "mlp": mlp}
    # Bytes of a layer's maps: [L] as stored if the model is quantized, else one number for all layers.
    layers = {
        name: np.array(_NUMBER_BYTES * size if stored is None else stored[name]) for name, size in sizes_read.items()
    }
    # [L] bytes: of a branch that a token executes, and of the K,V maps where it skips but leaves K,V.
    read = work[Work.ATTENTION_KEPT] * layers["attention"] + work[Work.REPAIRED] * layers["kv"]
    read = read + work[Work.MLP_KEPT] * layers["mlp"]
    spent = float(read.sum()) + _NUMBER_BYTES * (float(work[Work.SEEN].sum()) * keys + beside)
    # MACs of a pair count every query head, but heads of a group read the same K and V.
    pairs = float(work[Work.DENSE_PAIRS].sum())
    dense = _NUMBER_BYTES * (float(np.sum(part["dense_macs"])) - pairs * (pair - keys))
    return TokenBytes(spent / tokens, dense / tokens)


def _sizes(counts: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Return the MACs of q and o, of k and v, of one (query, key) pair and of the MLP, per token in any layer."""
    import numpy as np

    layers = len(counts["decode"]["work"])  # the last row of MACs is the head's

    # Both phases together: a branch may have been executed in one of them only.
    def both(name: str) -> np.ndarray:
        prefill, decode = (np.array(counts[phase][name])[:layers] for phase in ("prefill", "decode"))
        return prefill + decode

    work, macs = both("work"), both("macs")
    kept = Work.ATTENTION_KEPT
    times = {"attn_q_o": kept, "attn_kv": kept, "attn_mix": Work.SEEN, "mlp": Work.MLP_KEPT}
    q_o, kv, pair, mlp = (
        _one(macs[:, BUCKETS.index(f"core.{name}")], work[:, column]) for name, column in times.items()
    )
    return None if q_o is None or kv is None or pair is None or mlp is None else (q_o, kv, pair, mlp)


def _one(macs: np.ndarray, times: np.ndarray) -> float | None:
    """Return the MACs per unit (token or pair) if all layers that executed any agree, else `None`."""
    known = macs[times > 0] / times[times > 0]
    return float(known[0]) if known.size and known.max() - known.min() <= _SAME * known[0] else None
