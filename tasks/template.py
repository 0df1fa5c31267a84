"""The GateSkip paper's template for generative tasks, and helpers that its tasks share.

The template is `Question: ...`, `Answer: <reasoning>`, then `#### <answer>`. The options of a multiple-choice question
are listed in the question, one per line, and the answer is a letter. (The appendix that gives the template shows no
options, but without them an answer letter means nothing.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.data import Source, draw, held_out, read_rows
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.task import Example, ExampleRequest, Task

# The prompt ends right after the colon and the completion starts with a space: a byte-level tokenizer then cuts the
# joined text at exactly this point, so evaluation prompts end on the same tokens as training prompts.
PROMPT = "Question: {question}\nAnswer:"
METRICS = (
    "exact_match,strict-match",
    "exact_match,flexible-extract",
    "unparsable,strict-match",
    "unparsable,flexible-extract",
)
_HERE = Path(__file__).parent
_Form = Callable[[dict[str, Any]], dict[str, Any]]
SHARED_FILES = (_HERE / "answers.py", _HERE / "letter_answers.yaml", _HERE / "template.py")
TRACES_FIELD = "reasoning_nemotron_70B"
_TAGS = re.compile(r"</?reasoning>")


def with_options(question: str, options: Sequence[str], letters: Sequence[str] = "ABCDEFGHIJ") -> str:
    """The question, followed by its options, one per line."""
    return "\n".join([question.strip(), *(f"{letter}. {text}" for letter, text in zip(letters, options, strict=False))])


def right_one(options: Sequence[str], number: int) -> str:
    """The option that a row marks as the right one; a ValueError if there is no option of that number. A negative
    number is refused too, since Python would count it from the end.
    """
    if number not in range(len(options)):
        raise ValueError(f"the right answer is one of {len(options)} options from 0 on, got {number!r}")
    return options[number]


def target(reasoning: str, answer: str) -> str:
    """The text that a model should write after `Answer: `."""
    return f"{reasoning.strip()}\n#### {answer}".lstrip()


def document(question: str, answer: str, letters: str, reasoning: str = "") -> dict[str, Any]:
    """A document of a task whose answer is a letter; training examples are made from such documents too."""
    return {"question": question, "answer": answer, "letters": letters, "target": target(reasoning, answer)}


def examples(request: ExampleRequest, rows: Iterable[dict[str, Any]], key: str, form: _Form = dict) -> list[Example]:
    """Training examples drawn from rows: the field `key` identifies a row, and `form` makes of it a document with
    `question` and `target`.
    """
    drawn = map(form, draw(rows, lambda row: str(row[key]), request))
    return [Example(PROMPT.format(question=one["question"]), f" {one['target']}") for one in drawn]


def validation(rows: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The rows of a training split that are held out for validation, so neither trained nor calibrated on."""
    return held_out(rows, lambda row: str(row[key]), "validation")


def read_traces(source: Source, data_dir: Path | str | None) -> list[dict[str, Any]]:
    """Rows of the paper's reasoning traces that are not empty, with the trace in the field `reasoning`."""
    rows = read_rows(source, "train", data_dir)
    for row in rows:
        row["reasoning"] = _TAGS.sub("", row[TRACES_FIELD] or "").strip()
    if not any(row["reasoning"] for row in rows):
        raise EnvironmentProblem(f"The field {TRACES_FIELD!r} of {source} holds reasoning, but every row's is empty.")
    return [row for row in rows if row["reasoning"]]


def generative(name: str, **fields: Any) -> Task:
    """A zero-shot generative task in this template."""
    return Task(name=name, kind="generative", metrics=METRICS, other_files=SHARED_FILES, **fields)
