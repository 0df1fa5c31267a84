"""The command line `adaptive-bench`. Heavy modules are imported only after Ctrl-C is handled."""

import os
import sys

from adaptive_bench.cli.ending import ctrl_c_answered, reported
from adaptive_bench.startup import loader

__getattr__ = loader(__name__, dict.fromkeys(("COMMANDS", "app"), "adaptive_bench.cli.program"))


def main() -> None:
    """Entry point of the `adaptive-bench` script."""
    # PyTorch's threads (libgomp) spin while they wait for each other. With another busy program on two cores, SmolLM2
    # decoded 12 tokens in 27 s, and with this bound in 4 to 12 s. On an idle machine both take 0.7 s.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    with ctrl_c_answered(last=True):
        from io import TextIOWrapper

        from adaptive_bench.cli.program import app

        if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # help has characters that some terminals' encodings lack
        with reported(debug="--debug" in sys.argv):
            app()
