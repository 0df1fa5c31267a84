"""One question with its reasoning and answer, in GSM8K's template, with one split point for training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_bench.task import Example

# The prompt ends right after the colon and the completion starts with a space: a byte-level tokenizer then cuts the
# joined text at exactly this point, so what evaluation continues is what training has seen.
PROMPT = "Question: {question}\nAnswer:"


@dataclass(frozen=True)
class Item:
    """A generated question.

    Attributes:
        question: Everything after `Question: `.
        reasoning: One line, one small step per sentence.
        answer: A whole number or a word.
        key: What decides the split. Two items with the same key always share a split.
        steps: Steps of reasoning, 2 or 3.
        right: Place of the right statement.
        statements: Reasonings of which one belongs to the question; empty where there are none.
    """

    question: str
    reasoning: str
    answer: str
    key: str
    steps: int
    right: int = 0
    statements: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """What the model is given."""
        return PROMPT.format(question=self.question)

    @property
    def target(self) -> str:
        """What a perfect model writes, without the leading space."""
        return f"{self.reasoning}\n#### {self.answer}"

    def reasoned(self) -> Example:
        """The generative form: reasoning, then the answer."""
        return Example(prompt=self.prompt, completion=f" {self.target}")

    def stated(self) -> Example:
        """The log-likelihood form: the reasoning alone, which ends with the answer."""
        return Example(prompt=self.prompt, completion=f" {self.reasoning}")
