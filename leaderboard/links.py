"""Where a board leads to: the repository, the documentation, and how the suite is cited."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import version

from adaptive_bench.errors import UsageError

REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # of the environment, as for the documentation
_LINK = re.compile(r"https?://[A-Za-z0-9.\-]+(:\d+)?(/[A-Za-z0-9._~%/\-]*)?", re.ASCII)
_RELATIVE = re.compile(r"(\.\.?/)*[A-Za-z0-9._\-/]*", re.ASCII)
BIBTEX = """@software{{adaptive_bench,
  author  = {{{{adaptive-bench authors}}}},
  title   = {{adaptive-bench: benchmark suite for adaptive compute in language models}},
  version = {{{version}}},
  year    = {{2026}},
  license = {{MIT}}
}}"""


@dataclass(frozen=True)
class Links:
    """Addresses; an empty one leads nowhere, and the page then has no link.

    Attributes:
        repository: Of the source, without a slash at its end.
        manual: Of the documentation, absolute or as seen from the board's folder.
    """

    repository: str = ""
    manual: str = ""

    def of_file(self, path: str) -> str:
        """A file of the repository."""
        return f"{self.repository}/blob/main/{path}" if self.repository else ""

    def of_manual(self, page: str) -> str:
        """A page of the documentation as seen from a page of a method, one folder below the board."""
        if not self.manual:
            return ""
        start = self.manual if self.manual.startswith("http") else f"../{self.manual}"
        return f"{start.rstrip('/')}/{page}/"


def links_of(manual: str = "", repository: str | None = None) -> Links:
    """Checked addresses.

    Args:
        repository: By default what the environment says.

    Raises:
        UsageError: One is no address.
    """
    source = os.environ.get(REPOSITORY, "") if repository is None else repository
    for value, name in ((source, REPOSITORY), (manual, "--manual")):
        if value and not (_LINK.fullmatch(value) or (name == "--manual" and _RELATIVE.fullmatch(value))):
            raise UsageError(f"{name} is an address that begins with https://, got {value!r}.")
    return Links(source.rstrip("/"), manual)


def bibtex() -> str:
    """The entry of `CITATION.cff`, for BibTeX."""
    return BIBTEX.format(version=version("adaptive-bench"))
