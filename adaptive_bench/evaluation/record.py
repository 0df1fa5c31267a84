"""What one evaluation leaves behind: scores, measured savings and time, and one sample per document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from adaptive_bench.evaluation.matching import Point
from adaptive_bench.evaluation.time_axis import TimeCurve


@dataclass(frozen=True)
class Evaluation:
    """One method at one dial value on one task.

    Attributes:
        task: Name of the task.
        dial: Dial value of the method, in its own unit.
        scores: lm-eval metric key to value.
        docs: Documents evaluated.
        savings: Pooled shares saved of the dense model: `tokens`, `core`, `net`, `executed`; they may be negative.
        report: The whole compute report of the model, raw sums included.
        time_s: Seconds inside model calls; scoring and tokenizing are not counted.
        prompt_tokens: Tokens fed to the model, padding not counted.
        generated_tokens: Tokens the model wrote.
        batch_size: Sequences evaluated together, after any halving.
        num_fewshot: Worked examples before each question.
        fewshot_seed: Seed they were drawn with.
        data: Where the documents came from (`source`, `revision` of the hub), digests of them and of the prompts made
            of them, the version of the task, and signatures of its metrics; `None` in older records.
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
    data: Mapping[str, Any] | None = None

    @property
    def time_per_token_s(self) -> float:
        """Seconds in model calls for each token read or written."""
        return self.time_s / max(self.prompt_tokens + self.generated_tokens, 1)

    def point(self, metric: str, curve: TimeCurve | None = None) -> Point:
        """The measured point for matching, with its saved time where a timing is given and reaches that far."""
        tokens, core, net = (self.savings[axis] for axis in ("tokens", "core", "net"))
        time = None if curve is None else curve.at(tokens)
        return Point(self.dial, self.scores[metric], tokens, core, net, time)

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `json.dump`."""
        return asdict(self) | {"time_per_token_s": self.time_per_token_s}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_json` gave."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name != "data" or name in values})


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
    """

    doc: int
    target: Any
    output: str | int | float
    answers: Mapping[str, str]
    scores: Mapping[str, float]
    correct: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for one line of JSON."""
        return asdict(self)
