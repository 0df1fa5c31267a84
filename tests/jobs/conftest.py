"""The runs of seconds that jobs are tried with, as the tests of runs have them."""

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("runs_conftest", Path(__file__).parents[1] / "runs" / "conftest.py")
_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_runs)
config_of, registered, eventful_config = _runs.config_of, _runs.registered, _runs.eventful_config
