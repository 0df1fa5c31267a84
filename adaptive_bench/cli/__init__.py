"""The command line: `adaptive-bench`. Nothing is imported here before Ctrl-C has an answer."""

import sys

from adaptive_bench.cli.failures import ctrl_c_answered, reported
from adaptive_bench.startup import loader

__getattr__ = loader(__name__, dict.fromkeys(("COMMANDS", "app"), "adaptive_bench.cli.program"))


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    with ctrl_c_answered(last=True):
        from io import TextIOWrapper

        from adaptive_bench.cli.program import app

        if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # help has characters that not every terminal's encoding has
        with reported(debug="--debug" in sys.argv):
            app()
