"""What a reader of a table should know of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.tables.finished import QUICK_NOTE
from adaptive_bench.tables.floor_ceiling import floor_ceiling_notes
from adaptive_bench.tables.unparsable import unparsable_notes


def _if_quick(config: RunConfig) -> list[str]:
    about = f"{config.train.steps} steps, {config.evaluation.calibration_examples} calibration examples"
    return [
        f"{QUICK_NOTE}: a first look, with {about} and at most {config.evaluation.limit} documents."
    ] * config.is_quick


def notes_on(rows: Sequence[Mapping[str, Any]], config: RunConfig) -> list[str]:
    """That it was a first look; scores at the floor or the ceiling of a task; texts in which no answer is found."""
    matched = [row for row in rows if (row["axis"], row["phase"]) == (config.match_on, config.match_phase)]
    return [*_if_quick(config), *floor_ceiling_notes(rows, map(find_task, config.tasks)), *unparsable_notes(matched)]
