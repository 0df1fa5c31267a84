"""What was looked at as one tidy pandas frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adaptive_bench.inspection.study import Inspection
from adaptive_bench.inspection.token_kinds import kinds_of, parts_of_speech

if TYPE_CHECKING:
    from pandas import DataFrame


def tidy(inspection: Inspection, pos: str | None = None) -> DataFrame:
    """One row for each text, method, saving, token and branch: the columns of `TextDecisions.tidy`, and `text`,
    `saving` (asked for), `kind` of the token, and `oracle`: whether the token runs the layer by the stable exit of the
    method's own model.

    Args:
        pos: A spaCy pipeline: `part_of_speech` is a column as well.
    """
    import pandas

    parts = []
    for reading in inspection.readings:
        for point in reading.points:
            for number, (one, exits) in enumerate(zip(point.texts, reading.exits, strict=True)):
                sites = one.keep.shape[1] * one.keep.shape[2]
                layers = np.tile(np.arange(one.keep.shape[1]).repeat(2), len(exits))
                table = one.tidy()
                table.insert(0, "text", number)
                table.insert(2, "saving", point.saving)
                kinds = kinds_of(one.pieces, one.token_ids, inspection.ends)
                table.insert(table.columns.get_loc("token") + 1, "kind", np.asarray(kinds, dtype=object).repeat(sites))
                if pos is not None:
                    speech = parts_of_speech(one.pieces, pos)
                    table["part_of_speech"] = np.asarray(speech, dtype=object).repeat(sites)
                table["oracle"] = layers < exits.repeat(sites)
                parts.append(table)
    return pandas.concat(parts, ignore_index=True)
