"""Documents of MMLU for lm-eval, with worked examples from each document's own subject.

The subjects take turns, so that the first few hundred documents (`--limit`) cover all subjects evenly. STEM is what
lm-eval counts as such (19 subjects; the authors of MMLU leave anatomy out).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain, zip_longest
from typing import Any

from datasets import DatasetDict
from lm_eval.api.task import ConfigurableTask

from adaptive_bench.data import Row, harness_splits, read_several

from ..template import document, with_options
from .task import SOURCE

LETTERS = "ABCD"
STEM = frozenset(
    [
        "abstract_algebra",
        "anatomy",
        "astronomy",
        "college_biology",
        "college_chemistry",
        "college_computer_science",
        "college_mathematics",
        "college_physics",
        "computer_security",
        "conceptual_physics",
        "electrical_engineering",
        "elementary_mathematics",
        "high_school_biology",
        "high_school_chemistry",
        "high_school_computer_science",
        "high_school_mathematics",
        "high_school_physics",
        "high_school_statistics",
        "machine_learning",
    ]
)


class BySubject(ConfigurableTask):
    """Draws worked examples from the document's own subject, as lm-eval's task of that subject does."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config={key: value for key, value in config.items() if key != "class"})
        self._shown: dict[str, list[Any]] = defaultdict(list)
        for row in self.fewshot_docs():
            self._shown[row["subject"]].append(row)

    def fewshot_context(self, doc: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """See `ConfigurableTask.fewshot_context`."""
        self.sampler.replace_df(self._shown[doc["subject"]])
        return super().fewshot_context(doc, *args, **kwargs)


def all_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of every subject; lm-eval also passes the task's metadata, which is not needed."""
    return _docs(data_dir, None)


def stem_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of the STEM subjects."""
    return _docs(data_dir, STEM)


def written_docs(data_dir: str | None = None, **_: Any) -> DatasetDict:
    """Documents of every subject in the paper's template; the worked examples have no reasoning."""
    splits = {"test": "test", "validation": "validation", "shown": "dev"}
    found = read_several([(SOURCE, split) for split in splits.values()], data_dir)
    return harness_splits({name: map(_written, _in_turns(rows)) for name, rows in zip(splits, found, strict=True)})


def _docs(data_dir: str | None, subjects: Collection[str] | None) -> DatasetDict:
    names = ("test", "validation", "dev")
    splits = dict(zip(names, read_several([(SOURCE, name) for name in names], data_dir), strict=True))
    return harness_splits(
        {
            split: _in_turns([row for row in rows if subjects is None or row["subject"] in subjects])
            for split, rows in splits.items()
        }
    )


def _in_turns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first row of every subject, then the second row of every subject, and so on."""
    by_subject: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_subject[row["subject"]].append(row)
    turns = zip_longest(*(by_subject[subject] for subject in sorted(by_subject)))
    return [row for row in chain.from_iterable(turns) if row is not None]


def _written(row: Row) -> dict[str, Any]:
    about = document(with_options(row["question"], row["choices"]), LETTERS[row["answer"]], LETTERS)
    return about | {"subject": row["subject"]}
