"""What the checks before a run find: errors that stop it, and notes for whoever reads its table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from adaptive_bench.errors import AdaptiveBenchError
from adaptive_bench.faults import explained
from adaptive_bench.hub import raise_together


class Findings:
    """Collects what is found, each thing once.

    Attributes:
        errors: What stands in the way.
        notes: What does not, but should be known.
    """

    def __init__(self) -> None:
        self.errors: list[AdaptiveBenchError] = []
        self.notes: list[str] = []

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Go on with the next check where this one meets an error."""
        try:
            yield
        except AdaptiveBenchError as error:
            self.stop(error)

    def stop(self, error: AdaptiveBenchError) -> None:
        """Keep an error."""
        error = explained(error)  # while it is known where it was raised
        if str(error) not in map(str, self.errors):
            self.errors.append(error)

    def note(self, text: str) -> None:
        """Keep a note."""
        if text not in self.notes:
            self.notes.append(text)

    def raise_errors(self) -> None:
        """End here if anything stands in the way.

        Raises:
            AdaptiveBenchError: The one error, or several as one.
        """
        raise_together(self.errors)
