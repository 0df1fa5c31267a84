"""`adaptive-bench lm-eval`: lm-eval's own command line, which then knows the model `adaptive`."""

from __future__ import annotations

import sys

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def lm_eval(context: typer.Context) -> None:
    """lm-eval's command line with the model `adaptive`.

    `adaptive-bench lm-eval run --model adaptive --model_args pretrained=DIR,saving=0.15 --tasks piqa`: every option is
    lm-eval's; `model_args` takes saving or dial, spec, calibration, dtype.
    """
    from lm_eval.__main__ import cli_evaluate

    from adaptive_bench.evaluation import harness  # noqa: F401 - registers the model

    sys.argv = ["lm_eval", *context.args]
    cli_evaluate()
