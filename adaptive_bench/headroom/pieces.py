"""Pieces of a study on disk: what was measured is not measured again after an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.store import atomic


class Pieces:
    """A folder of JSON files.

    Args:
        folder: Named after everything the pieces depend on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A piece from disk, else made and kept; one that cannot be parsed is made again.

        Raises:
            EnvironmentProblem: The folder cannot be read or written.
        """
        file = self._folder / f"{name}.json"
        try:
            found: dict[str, Any] = json.loads(file.read_bytes())
            return found
        except (FileNotFoundError, ValueError):
            pass
        except OSError as error:
            raise EnvironmentProblem(
                f"What was measured before must be readable, but {str(file)!r} is not: {error.strerror}. Correct its "
                f"permissions or choose another folder with --out."
            ) from error
        made = make()
        atomic.write_json(file, made)
        return made
