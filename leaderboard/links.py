"""Links of a board: the repository, the documentation, and how to cite the suite."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import version

from adaptive_bench.errors import UsageError

REPOSITORY = "ADAPTIVE_BENCH_REPOSITORY"  # environment variable, which the documentation uses too
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
    """Addresses; for an empty one the page has no link.

    Attributes:
        repository: Address of the repository, without a slash at its end.
        manual: Address of the documentation, absolute or relative to the board's folder.
    """

    repository: str = ""
    manual: str = ""

    def of_file(self, path: str) -> str:
        """Address of a file in the repository."""
        return f"{self.repository}/blob/main/{path}" if self.repository else ""

    def of_manual(self, page: str) -> str:
        """Address of a page of the documentation, relative to a method's page, which is one folder below the board."""
        if not self.manual:
            return ""
        start = self.manual if self.manual.startswith("http") else f"../{self.manual}"
        return f"{start.rstrip('/')}/{page}/"


def links_of(manual: str = "", repository: str | None = None) -> Links:
    """The links of a board, with checked addresses.

    Args:
        manual: Address of the documentation.
        repository: Address of the repository; by default taken from the environment.

    Raises:
        UsageError: A value is not an address.
    """
    source = os.environ.get(REPOSITORY, "") if repository is None else repository
    for value, name in ((source, REPOSITORY), (manual, "--manual")):
        if value and not (_LINK.fullmatch(value) or (name == "--manual" and _RELATIVE.fullmatch(value))):
            raise UsageError(f"{name} is an address that begins with https://, got {value!r}.")
    return Links(source.rstrip("/"), manual)


def bibtex() -> str:
    """The citation of `CITATION.cff` as a BibTeX entry."""
    return BIBTEX.format(version=version("adaptive-bench"))
