"""The runs of seconds that jobs are tried with."""

from small_runs import config_of, eventful_config, registered

__all__ = ["config_of", "eventful_config", "registered"]
