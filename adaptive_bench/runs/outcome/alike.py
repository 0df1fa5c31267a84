"""Are the records of one table comparable: the same documents with the same right answers?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.store.evaluations import Evaluation

_CONTENTS = {"documents_sha256": "documents", "gold_sha256": "right answers"}


class SameDocuments:
    """Takes the points of a table one by one, and refuses those that were asked something else than the ones before."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], tuple[str, DialEvaluation]] = {}

    def check(self, sweep: DialEvaluation, evaluation: Evaluation) -> None:
        """Compare the documents of a point with those of the first one of its task.

        Raises:
            EnvironmentProblem: They, or their right answers, are others.
        """
        data: Mapping[str, Any] = evaluation.data or {}  # records of earlier versions have no digest of right answers
        for key, what in _CONTENTS.items():
            if (digest := data.get(key)) is None:
                continue
            known, first = self._first.setdefault((sweep.task, sweep.split, key), (digest, sweep))
            if known != digest:
                raise EnvironmentProblem(
                    f"Methods are compared on the same documents, but the {what} of {sweep.task!r} in the record "
                    f"{str(sweep.folder)!r} ({sweep}) are not those in {str(first.folder)!r} ({first}): the data "
                    f"changed between the two. Remove the folder of the older one and give the same command again: it "
                    f"is measured anew."
                )
