"""Decisions on a text as a picture for papers: tokens by layers, attention and MLP apart. It needs matplotlib."""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_bench import output
from adaptive_bench.errors import EnvironmentProblem, UsageError

FORMS = (".svg", ".pdf", ".png")
_RUNS, _SKIPS, _LATER = "#0b57a4", "#eef1f4", "#b84a00"  # the answer's tokens are named in the last
_MOST_TOKENS_A_LINE, _LONGEST_NAME = 48, 12
# The same decisions give the same bytes: no dates, and identifiers that are not random. Text stays text.
_SETTINGS = {"svg.hashsalt": "adaptive-bench", "svg.fonttype": "none", "pdf.fonttype": 42, "font.size": 8}
_DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def drawn(keep: np.ndarray, names: Sequence[str], prompt_tokens: int, title: str) -> Any:
    """A figure with two maps for each 48 tokens: dark where the token executes the branch, layer 0 below.

    Args:
        keep: [S, L, 2] who executes attention and MLP.
        names: Of the tokens.
        prompt_tokens: Tokens after so many are the answer's, and named in another colour.

    Raises:
        EnvironmentProblem: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentProblem(
            "Pictures are drawn by matplotlib, which is not installed. Give pip install 'adaptive-bench[figures]', or "
            "name a .html, .csv or .parquet file."
        )
    matplotlib: Any = importlib.import_module("matplotlib")
    colours: Any = importlib.import_module("matplotlib.colors").ListedColormap([_SKIPS, _RUNS])
    tokens, layers, _ = keep.shape
    lines = -(-tokens // _MOST_TOKENS_A_LINE)
    wide = min(tokens, _MOST_TOKENS_A_LINE)
    with matplotlib.rc_context(_SETTINGS):
        size = (1.2 + 0.17 * wide, lines * (1.5 + 0.26 * layers) + 0.4)
        figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
        maps = figure.subplots(2 * lines, 1, squeeze=False)[:, 0]
        for line in range(lines):
            start, end = line * _MOST_TOKENS_A_LINE, min(tokens, (line + 1) * _MOST_TOKENS_A_LINE)
            for branch, name in enumerate(("attention", "MLP")):
                axes = maps[2 * line + branch]
                values = np.full((layers, wide), np.nan)
                values[:, : end - start] = keep[start:end, :, branch].T
                axes.pcolormesh(values, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=0.4)
                axes.set_ylabel(f"{name}\nlayer")
                axes.set_yticks(np.arange(layers)[:: max(1, layers // 6)] + 0.5, range(0, layers, max(1, layers // 6)))
                axes.spines[:].set_visible(False)
                axes.tick_params(length=0)
                axes.set_xticks([])
            _name_tokens(maps[2 * line + 1], names[start:end], prompt_tokens - start)
        figure.suptitle(_plain(title), fontsize=9)
    return figure


def written(figure: Any, path: Path) -> None:
    """Write a figure into a file, `-` never.

    Raises:
        UsageError: The file's name ends otherwise than `.svg`, `.pdf` or `.png`.
    """
    if path.suffix not in FORMS:
        raise UsageError(f"A picture is a file that ends in {', '.join(FORMS)}, got {str(path)!r}.")
    matplotlib: Any = importlib.import_module("matplotlib")
    made = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(made, format=path.suffix[1:], metadata=_DATES[path.suffix], dpi=200)
    output.write_bytes(path, made.getvalue())


def _name_tokens(axes: Any, names: Sequence[str], prompt_tokens: int) -> None:
    shown = [_plain(name)[:_LONGEST_NAME] for name in names]
    axes.set_xticks(np.arange(len(names)) + 0.5, shown, rotation=90, family="monospace", fontsize=7)
    for place, label in enumerate(axes.get_xticklabels()):
        if place >= prompt_tokens:
            label.set_color(_LATER)


def _plain(text: str) -> str:
    """Text that matplotlib takes for no formula."""
    return text.replace("$", r"\$")
