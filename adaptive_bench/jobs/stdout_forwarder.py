"""What methods print during a run is told like everything else: in lines a terminal can show, and not without end."""

from __future__ import annotations

import io

from adaptive_bench.errors import one_line
from adaptive_bench.progress import Reporter

_MOST_LINES = 50
_LONGEST = 300  # characters of a line
_BUFFER = 10_000  # of a line whose end has not come


class StdoutForwarder(io.TextIOBase):
    """A stream for `print` whose lines go to a reporter, without what a terminal would act on.

    Plugins may print anything: escapes that rewrite the screen, megabytes. What is cut or left out is said.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._begun = ""
        self._lines = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Keep what has no end yet, tell what has."""
        *whole, self._begun = (self._begun + text[: 4 * _BUFFER]).split("\n")
        self._begun = self._begun[:_BUFFER]
        for line in whole:
            self._tell(line)
        return len(text)

    def _tell(self, line: str) -> None:
        shown = one_line(line, _LONGEST)
        if not shown:
            return
        self._lines += 1
        if self._lines <= _MOST_LINES:
            self.reporter.line(shown)
        elif self._lines == _MOST_LINES + 1:
            self.reporter.line(f"More than {_MOST_LINES} lines were printed during the run; the others are left out.")
