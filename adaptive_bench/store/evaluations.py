"""What one evaluation leaves behind: scores, measured savings and time, and one sample per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from adaptive_bench.store.counts import TokenBytes, token_bytes
from adaptive_bench.store.savings import MATCH_PHASES, Axis, MatchPhase

PHASES = MATCH_PHASES[1:]


@dataclass(frozen=True)
class Evaluation:
    """One method at one dial value on one task.

    Attributes:
        task: Name of the task.
        dial: Dial value of the method, in its own unit.
        scores: lm-eval metric key to value.
        docs: Documents evaluated.
        savings: Pooled shares saved of the dense model: `tokens`, `core`, `net`, `layers`, `executed`; they may be
            negative.
        report: The whole compute report of the model: savings by phase, and the raw sums. `decode` is tokens fed one
            by one while an answer is written; `prefill` is everything read in one pass. That is the prompt, whose last
            position writes the first token of an answer, and in log-likelihood tasks the answers too, which are given
            and read along. So a log-likelihood task has no `decode`, and its `prefill` is not prompts alone.
        time_s: Seconds inside model calls; scoring and tokenizing are not counted.
        prompt_tokens: Tokens fed to the model, padding not counted.
        generated_tokens: Tokens the model wrote.
        batch_size: Sequences evaluated together, after any halving.
        num_fewshot: Worked examples before each question.
        fewshot_seed: Seed they were drawn with.
        claimed: Share of token-branches that the method's dial says it skips, in any phase; `None` where it says
            nothing, and in older records.
        projected: By phase, the net saving that the same decisions would have on the shape `projected_shape`; worked
            out from the report where a table is made (`runs.projection`), else `None`.
        projected_shape: Its name.
        data: Where the documents came from (`source`, `revision` of the hub), digests of them, of their right answers
            and of the prompts made of them, the version of the task, signatures of its metrics, and the digest of the
            chat template where prompts were put into one; `None` in older records.
        stored: Of a quantized model the bytes of each layer as it is stored, lists [L]: `attention` and of that `kv`,
            and `mlp`; else `None`.
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
    data: Mapping[str, Any] | None = None
    stored: Mapping[str, Any] | None = None

    @property
    def time_per_token_s(self) -> float:
        """Seconds in model calls for each token read or written."""
        return self.time_s / max(self.prompt_tokens + self.generated_tokens, 1)

    def saved(self, axis: Axis, phase: MatchPhase = "all") -> float | None:
        """The share saved on an axis in a phase; `None` where it is not known, or the phase has no tokens."""
        if axis == "claimed":
            return self.claimed if phase == "all" else None
        if axis == "projected":
            return None if self.projected is None else self.projected.get(phase)
        if axis == "bytes":
            found = self.token_bytes if phase == "all" else None
            return None if found is None else 1 - found.read / found.dense
        saved: Mapping[str, float | None] = self.savings if phase == "all" else self.report.get(phase, {})
        if axis == "layers" and axis not in saved:  # a record of an earlier version
            return self._saved_of_layers(saved.get("net"), phase)
        return saved.get(axis)

    def _saved_of_layers(self, net: float | None, phase: MatchPhase) -> float | None:
        if net is None or (parts := self._counts(phase)) is None:
            return None
        layers = sum(sum(part["dense_macs"][:-1]) for part in parts)  # the last row is the head
        return net * sum(sum(part["dense_macs"]) for part in parts) / layers if layers else None

    def _counts(self, phase: MatchPhase) -> list[Mapping[str, Any]] | None:
        counts = self.report.get("counts")
        return None if counts is None else [counts[one] for one in (PHASES if phase == "all" else (phase,))]

    @cached_property
    def token_bytes(self) -> TokenBytes | None:
        """Bytes that a token reads which is fed alone while a text is written, and what the dense model in fp32 would
        read; `None` where nothing was written, and where the counts do not tell (see `counts.token_bytes`).
        """
        return token_bytes(self.report.get("counts", {}), self.stored)

    @property
    def bytes_per_token(self) -> float | None:
        """What of them is read; `None` where that is not known."""
        return None if self.token_bytes is None else self.token_bytes.read

    def flops_per_token(self, phase: MatchPhase = "all") -> float | None:
        """FLOPs that a token fed in a phase cost on average, all that the method adds included; `None` where the phase
        has no tokens, and in records without counts. The dense model's FLOPs for the same tokens, two a
        multiply-accumulate, less the net saving.
        """
        parts, saved = self._counts(phase), self.saved("net", phase)
        if parts is None or saved is None:
            return None
        tokens = sum(part["tokens"] for part in parts)
        return (1 - saved) * 2 * sum(sum(part["dense_macs"]) for part in parts) / tokens if tokens else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `json.dump`."""
        return asdict(self) | {"time_per_token_s": self.time_per_token_s}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_json` gave, whatever stands beside it."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


@dataclass(frozen=True)
class Sample:
    """One document of an evaluation.

    Attributes:
        doc: Index of the document in the evaluated split.
        target: The right answer as the task defines it.
        output: Text written, or index of the best choice, or a log-likelihood.
        answers: What each filter made of the output (`strict-match: "42"`); empty for log-likelihood tasks.
        scores: lm-eval metric key to the value of this document, where it is a number.
        correct: The headline metric of this document, `None` where it is not a number.
        prompt: What the model was given; on disk only where nothing was to be saved, as it is the same everywhere.
        choices: The continuations that were scored, where there were several; on disk like the prompt.
    """

    doc: int
    target: Any
    output: str | int | float
    answers: Mapping[str, str]
    scores: Mapping[str, float]
    correct: float | None
    prompt: str | None = None
    choices: tuple[str, ...] = ()

    def to_json(self, *, with_prompt: bool = True) -> dict[str, Any]:
        """Plain values, ready for one line of JSON."""
        values = asdict(self)
        if not with_prompt:
            del values["prompt"], values["choices"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sample:
        """Read back what `to_json` gave."""
        return cls(**dict(values) | {"choices": tuple(values.get("choices", ()))})
