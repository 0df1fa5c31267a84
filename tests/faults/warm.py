"""Imported once by the fork server of the trials: libraries, tasks and patterns are there when a worker starts."""

import os
from pathlib import Path

from kill_and_resume import HOME_VARIABLE, make_config, warm_up

if home := os.environ.get(HOME_VARIABLE):
    where, _, model = home.partition(os.pathsep)
    warm_up(make_config(model, Path(where) / "warm" / "out", Path(where)))
