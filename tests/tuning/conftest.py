"""Runs of seconds to tune."""

from small_runs import config_of

__all__ = ["config_of"]
