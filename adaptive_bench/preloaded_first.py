"""The first that a fork server loads: before any library that would say something where nobody asked."""

import os

from adaptive_bench.notices import QUIET, silence

if QUIET in os.environ:
    silence()
