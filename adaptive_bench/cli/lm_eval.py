"""`adaptive-bench lm-eval`: runs lm-eval's own command line with the model `adaptive` and this package's tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import typer

from adaptive_bench.errors import UsageError
from adaptive_bench.progress import say


def lm_eval(context: typer.Context) -> None:
    """lm-eval's command line with the model `adaptive` and the tasks of `list tasks`.

    `adaptive-bench lm-eval run --model adaptive --model_args pretrained=DIR,saving=0.15 --tasks piqa`: every option is
    lm-eval's; `model_args` takes saving or dial, spec, calibration, dtype. Without `--device` a GPU is used if there is
    one. If a task of this package and one of lm-eval have the same name, this package's is used.
    """
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    sys.argv = ["lm_eval", *context.args]  # which its command line reads
    command: Any = HarnessCLI()
    arguments = command.parse_args()
    if arguments.command == "run":
        _complete(arguments)
    from lm_eval import tasks

    from adaptive_bench.evaluation.lm_eval_registration import SuiteTasks  # also registers the model

    tasks.TaskManager = SuiteTasks  # lm-eval's subcommands import it by this name when they run
    setup_logging()
    command.execute(arguments)


def _complete(arguments: argparse.Namespace) -> None:
    """Complete arguments: the names of tasks, and the device if none is given."""
    from lm_eval.config.evaluate_config import EvaluatorConfig

    from adaptive_bench.evaluation.lookup import names_for_lm_eval

    in_file = EvaluatorConfig.load_yaml_config(arguments.config) if arguments.config else {}

    def given(name: str) -> Any:
        value = getattr(arguments, name, None)
        return in_file.get(name) if value in (None, "") else value

    included, named = given("include_path"), given("tasks") or []
    names = [name for part in ([named] if isinstance(named, str) else named) for name in str(part).split(",") if name]
    if not names:
        raise UsageError("lm-eval run asks tasks, got none. Name them with --tasks, for example --tasks piqa.")
    meant = {name: names_for_lm_eval(name, included) for name in names}  # before torch is imported, for a typo

    from adaptive_bench.evaluation.lm_eval_registration import NAME
    from adaptive_bench.hardware import find_device

    arguments.tasks = [name for found in meant.values() for name in found]
    for name, found in meant.items():
        if found != [name]:
            say(f"{name} stands for {', '.join(found)} here.", sys.stderr)
    if (model := given("model")) is None:
        raise UsageError(f"lm-eval's own default is another model, got no --model. Give --model {NAME}.")
    if model != NAME:
        return
    for_model = given("model_args")
    # lm-eval's command line makes a mapping of them; a text in a YAML file is left to lm-eval.
    own = for_model.get("device") if isinstance(for_model, Mapping) else None
    device = arguments.device or own or in_file.get("device")
    arguments.device = str(find_device(str(device or "auto")))
    if device is None:
        say(f"No --device is given: the model runs on {arguments.device}.", sys.stderr)
