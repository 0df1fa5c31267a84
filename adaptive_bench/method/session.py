"""Sessions: what a request carries from call to call besides keys and values, and random numbers for its tokens.

Draws are counter-based: they depend on a counter and a key, never on earlier draws. So a decision is the same with or
without a cache, in any batch and on any device, and a resumed training repeats it. The counters are
`call.draw_counters`, which differ from token to token and from document to document; the key is
`draw_key(seed, step, site)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from adaptive_bench.errors import UsageError

_HASH_BASE = -7046029254386353131  # 2**64 / golden ratio, odd, as a signed integer; products wrap around
_OF_ROWS = ("lengths", "hash_sum", "hash_power", "documents")  # a session's fields of shape [B]
_powers: dict[torch.device, Tensor] = {}


def hash_powers(count: int, device: torch.device) -> Tensor:
    """Powers 0 .. count - 1 of the prefix hash's 64-bit base, [count]; cached per device."""
    known = _powers.get(device)
    if known is None or known.numel() < count:
        # More than asked for, so that a growing text extends the table rarely.
        factors = torch.full((max(count, 256) + count,), _HASH_BASE, device=device)
        factors[0] = 1
        known = _powers[device] = factors.cumprod(0)
    return known[:count]


@dataclass
class Session:
    """State of B requests between two forward calls.

    Attributes:
        lengths: [B] number of real tokens seen.
        host_lengths: The same numbers on the host, which Python can read without waiting for a device.
        hash_sum: [B] running sum behind the prefix hash.
        hash_power: [B] power of the hash's base for the next token.
        documents: [B] key of the document each request belongs to (see `document_key`), 0 if the caller named none.
        state: Tensors [B, ...] that a method keeps per request.
    """

    lengths: Tensor
    host_lengths: np.ndarray
    hash_sum: Tensor
    hash_power: Tensor
    documents: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    # Tokens (and real ones among them) that `advance` added and the hash does not cover yet.
    _unhashed: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)

    @classmethod
    def start(cls, batch: int, device: torch.device) -> Session:
        """Requests that have seen nothing yet."""
        zeros = torch.zeros(batch, dtype=torch.long, device=device)
        return cls(zeros, np.zeros(batch, dtype=np.int64), zeros, torch.ones_like(zeros), zeros)

    def name_documents(self, documents: Tensor) -> None:
        """Set the document each request belongs to, by keys [B]; only before the first token."""
        if documents.shape != self.documents.shape or documents.dtype != self.documents.dtype:
            raise UsageError(
                f"documents holds one 64-bit key for each of the {len(self.documents)} rows, got {documents.dtype} of "
                f"shape {list(documents.shape)}. Make them with document_key(...)."
            )
        if self.host_lengths.any():
            raise UsageError(
                "documents are named in the first call of a text and kept with its cache, got them in a later call. "
                "Leave documents out of later calls."
            )
        self.documents = documents.to(self.documents.device)

    def select_rows(self, rows: Tensor, host_rows: np.ndarray | None = None) -> None:
        """Keep only the given batch rows [R], in that order; a row may be taken several times."""
        self._hash()
        host_rows = rows.cpu().numpy() if host_rows is None else host_rows
        self.host_lengths = self.host_lengths[host_rows]
        for name in _OF_ROWS:
            setattr(self, name, getattr(self, name)[rows])
        self.state = {name: value[rows] for name, value in self.state.items()}

    def join(self, other: Session) -> None:
        """Append the rows of another session of the same method."""
        self._hash()
        other._hash()
        self.host_lengths = np.concatenate([self.host_lengths, other.host_lengths])
        for name in _OF_ROWS:
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))
        self.state = {name: torch.cat([value, other.state[name]]) for name, value in self.state.items()}

    def copy(self) -> Session:
        """A copy that later calls do not change. It shares tensors, because calls replace tensors and never write."""
        self._hash()
        return replace(self, state=dict(self.state), _unhashed=[])

    def after(self, tokens: Tensor) -> Session:
        """The session after N >= 1 more tokens [B, N]; the method's own state is not advanced."""
        later = self.copy()
        later.advance(tokens, None, np.full(len(tokens), tokens.shape[1]))
        return later

    def prefix_hashes(self, input_ids: Tensor, valid: Tensor | None) -> Tensor:
        """[B, S] 64-bit hash of each next token's prefix, including the token; padding (not `valid`) adds nothing."""
        self._hash()
        # A token's term is (id + 1) * base ** n, n counting real tokens from 1; + 1 makes id 0 count.
        powers = hash_powers(input_ids.shape[1] + 1, input_ids.device)
        if valid is None:
            terms = (input_ids + 1) * (powers[1:] * self.hash_power[:, None])
        else:
            terms = (input_ids + 1) * powers[valid.cumsum(dim=1)] * self.hash_power[:, None] * valid
        return self.hash_sum[:, None] + terms.cumsum(dim=1)

    def advance(self, input_ids: Tensor, valid: Tensor | None, added: np.ndarray, hashes: Tensor | None = None) -> None:
        """Add a call's tokens [B, S] to the session: the `valid` ones [B, S] or all, `added` [B] in each row.

        Their prefix hashes [B, S] are given if they were already computed.
        """
        if not input_ids.numel():
            return
        if hashes is None:
            self._unhashed.append((input_ids, valid))
        else:
            self._take_hashes(hashes, valid)
        self.lengths = self.lengths + (input_ids.shape[1] if valid is None else valid.sum(dim=1))
        self.host_lengths = self.host_lengths + added

    def _hash(self) -> None:
        """Bring the prefix hash up to date. Tokens are hashed late because only random draws need the hash."""
        pending, self._unhashed = self._unhashed, []
        for input_ids, valid in pending:
            self._take_hashes(self.prefix_hashes(input_ids, valid), valid)

    def _take_hashes(self, hashes: Tensor, valid: Tensor | None) -> None:
        powers = hash_powers(hashes.shape[1] + 1, hashes.device)
        # Padding adds nothing, so the last column holds the whole row's sum even if padding is on the right.
        self.hash_sum = hashes[:, -1]
        self.hash_power = self.hash_power * (powers[-1] if valid is None else powers[valid.sum(dim=1)])


def uniforms_from(counters: Tensor, keys: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1), [K, *], from 64-bit counters [*] and K keys.

    Uses the finaliser of SplitMix64 (Steele et al. 2014).
    """
    # SplitMix64 adds its constant `key` times to the state and then scrambles it: a stream per counter.
    offsets = _offsets(tuple(keys), counters.device)
    mixed = counters + offsets.view(-1, *[1] * counters.dim())
    mixed = (mixed ^ _shift_right(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shift_right(mixed, 27)) * _signed(0x94D049BB133111EB)
    mixed = mixed ^ _shift_right(mixed, 31)
    return _shift_right(mixed, 11).to(torch.float64) * 2.0**-53  # the upper 53 bits, as many as a double holds exactly


@lru_cache(maxsize=16)
def _offsets(keys: tuple[int, ...], device: torch.device) -> Tensor:
    """[K] the offset of each key's counters."""
    return torch.tensor([_signed(key * 0x9E3779B97F4A7C15) for key in keys], device=device)


def uniform_from(counters: Tensor, key: int) -> Tensor:
    """Uniform numbers in [0, 1), [*], from 64-bit counters [*] and a key."""
    return uniforms_from(counters, [key])[0]


def draw_key(seed: int, step: int, site: int) -> int:
    """One key per seed, training step (0 at inference) and site."""
    return (seed * 1_000_003 + step) * 4_096 + site  # distinct for sites < 4,096 and steps < 1,000,003


def document_key(*identity: str | int) -> int:
    """The 64-bit key of a document, from its identity, for example the task's name and the document's number there.

    Random draws for different keys are independent, whatever the documents have in common.
    """
    digest = hashlib.blake2b("\n".join(map(repr, identity)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _signed(value: int) -> int:
    """The low 64 bits as a signed integer, as torch stores it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Logical shift of signed 64-bit integers."""
    # torch has no unsigned shift: `>>` copies the sign bit in, and the mask clears it.
    return (value >> bits) & ((1 << (64 - bits)) - 1)
