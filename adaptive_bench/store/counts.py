"""The columns of the counts that a measured point keeps (`report["counts"]`), and the bytes that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

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
COSINE, NORM, RESCALE = "cosine", "norm", "rescale"  # runs that read no weights
_NUMBER_BYTES = 4  # weights and K,V are fp32 in evaluation
_SAME = 1e-9


class Work:
    """Columns of what was run of one layer. Tokens and pairs, not MACs.

    `*_eligible` tokens that could execute the branch, `*_kept` that did, `*_slots` that went through its linear maps
    (of attention: q and o), `*_reads` calls in which somebody did (`kv_reads`: in which K,V were projected and nobody
    attended); `projected` slots of the k and v maps, `repaired`
    tokens that skipped and left K,V all the same, `seen` (query, key) pairs the semantics need, `pairs` those that were
    executed; `dense_*` what the dense model needs.
    """

    COLUMNS = 15
    ATTENTION_ELIGIBLE, ATTENTION_KEPT, ATTENTION_SLOTS, ATTENTION_READS = range(4)
    MLP_ELIGIBLE, MLP_KEPT, MLP_SLOTS, MLP_READS = range(4, 8)
    PROJECTED, REPAIRED, SEEN, PAIRS, DENSE_TOKENS, DENSE_PAIRS, KV_READS = range(8, 15)


class TokenBytes(NamedTuple):
    """Bytes read for a token that is fed alone, one row, while a text is written; means over the tokens.

    Attributes:
        read: By the model as it was measured: weights of the branches that the token executes, of K,V maps where it
            skips and leaves K,V all the same, of the method's own maps, of the head, and K,V of the keys it sees.
            Activations, embeddings, norms and what is written are left out.
        dense: By the dense model in fp32.
    """

    read: float
    dense: float


def token_bytes(counts: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> TokenBytes | None:
    """What a decoded token reads, from the counts behind the MACs: a linear map multiplies each of its weights once for
    a token, so that its MACs are its weights. Whoever shared the batch, each token is charged as if it were alone.

    Args:
        counts: Of a compute report.
        stored: Bytes of quantized layers as they are stored, lists [L] `attention`, `kv` and `mlp`; without them all
            weights are fp32.

    Returns:
        `None` where no token was decoded, and where sizes do not follow: older records without counts, layers that
        differ, or a branch that nobody executed anywhere.
    """
    if not counts or any("work" not in counts.get(phase, {}) for phase in ("prefill", "decode")):
        return None
    part, tokens = counts["decode"], counts["decode"]["tokens"]
    sizes = _sizes(counts)
    if not tokens or sizes is None:
        return None
    q_o, kv, pair, mlp = sizes
    hidden = q_o / pair
    work, macs = np.array(part["work"]).T, np.array(part["macs"]).sum(axis=0)
    keys = kv / hidden  # numbers of K and V together that a key has
    runs = part["runs"]
    per_state = 3 * runs.get(COSINE, 0.0) + runs.get(NORM, 0.0) + runs.get(RESCALE, 0.0)  # a cosine has two norms
    weightless = hidden * per_state
    by_name = dict(zip(BUCKETS, macs.tolist(), strict=True))
    beside = by_name["core.head"] + by_name["overhead.decision"] + by_name["overhead.adapter"] - weightless
    sizes_read = {"attention": q_o + kv, "kv": kv, "mlp": mlp}
    layers = {
        name: np.array(_NUMBER_BYTES * size if stored is None else stored[name]) for name, size in sizes_read.items()
    }
    read = work[Work.ATTENTION_KEPT] * layers["attention"] + work[Work.REPAIRED] * layers["kv"]
    read = read + work[Work.MLP_KEPT] * layers["mlp"]
    spent = float(read.sum()) + _NUMBER_BYTES * (float(work[Work.SEEN].sum()) * keys + beside)
    pairs = float(work[Work.DENSE_PAIRS].sum())
    dense = _NUMBER_BYTES * (float(np.sum(part["dense_macs"])) - pairs * (pair - keys))
    return TokenBytes(spent / tokens, dense / tokens)


def _sizes(counts: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """MACs of q and o, of k and v, of one (query, key) pair and of the MLP, for one token of any layer."""
    layers = len(counts["decode"]["work"])  # the last row of MACs is the head's

    def both(name: str) -> np.ndarray:
        prefill, decode = (np.array(counts[phase][name])[:layers] for phase in ("prefill", "decode"))
        return prefill + decode

    work, macs = both("work"), both("macs")
    columns = {name: macs[:, BUCKETS.index(f"core.{name}")] for name in ("attn_q_o", "attn_kv", "attn_mix", "mlp")}
    found = (
        _one(columns["attn_q_o"], work[:, Work.ATTENTION_KEPT]),
        _one(columns["attn_kv"], work[:, Work.ATTENTION_KEPT]),
        _one(columns["attn_mix"], work[:, Work.SEEN]),
        _one(columns["mlp"], work[:, Work.MLP_KEPT]),
    )
    return None if None in found else found  # type: ignore[return-value]


def _one(macs: np.ndarray, times: np.ndarray) -> float | None:
    """What one costs, where it is the same in every layer that tells."""
    known = macs[times > 0] / times[times > 0]
    return float(known[0]) if known.size and np.ptp(known) <= _SAME * known[0] else None
