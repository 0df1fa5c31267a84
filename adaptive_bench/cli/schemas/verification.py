"""What `adaptive-bench leaderboard verify --from-records --json` prints."""

from __future__ import annotations

from typing_extensions import TypedDict


class Rederivation(TypedDict):
    """Whether the table of an entry is what its records give.

    Attributes:
        holds: Whether nothing differs.
        rows: Of the table.
        differences: Values or rows that are not what the records say, a sentence each.
        unprojected: Methods whose saving on another shape was not compared: their plugin is not here.
        sealed: Whether the records are held to the seals of the entry.
        unscored: By task why answers were not scored again, as the end of a sentence.
    """

    holds: bool
    rows: int
    differences: list[str]
    unprojected: list[str]
    sealed: bool
    unscored: dict[str, str]
