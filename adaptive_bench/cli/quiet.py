"""Silences the progress bars and notices of the libraries below us; ours are the only ones a user sees."""

from __future__ import annotations

import os
import warnings

from adaptive_bench.startup import QUIET, silence

_SETTINGS = {
    QUIET: "1",
    "DATASETS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "LMEVAL_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",  # for worker processes
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def quiet() -> None:
    """Set the libraries' own switches; called before they are imported. What the user has set already stays."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")
    silence()
