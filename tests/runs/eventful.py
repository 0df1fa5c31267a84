"""A plugin: the dense model with something that happens in one step of its training, or in its answers, by its spec."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import torch

from adaptive_bench import registry
from adaptive_bench.method import Decision
from adaptive_bench.methods.dense import Dense


@registry.register("methods", "eventful")
class Eventful(Dense):
    """It happens in step `EVENTS_STEP`, later than the steps that are timed before a run. The folder in `EVENTS`
    remembers what must not happen twice; a step takes `EVENTS_STEP_S` seconds more.
    """

    class Config(Dense.Config):
        event: str = "none"

    @classmethod
    def training_spec(cls, config, spec):
        return spec

    def begin_step(self, step, total_steps):
        super().begin_step(step, total_steps)
        time.sleep(float(os.environ.get("EVENTS_STEP_S", "0")))
        if step == int(os.environ["EVENTS_STEP"]):
            self._happen(Path(os.environ["EVENTS"]) / "killed")

    def _happen(self, killed):
        event = self.config.event
        if event == "raises":
            raise RuntimeError("the router is on fire")
        if event == "exhausts":
            torch.empty(1 << 50)
        if event == "prints":
            print("\x1b[2J\x07" + "x" * 4_000_000, flush=True)
            print("\x1b]0;title\x07", file=sys.stderr, flush=True)
        if event == "killed" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "loops":
            while True:
                pass
        if event == "holds":  # no other thread gets a turn, and no signal is looked at
            killed.with_name("holding").touch()
            sum(itertools.repeat(0))
        if event == "loops_later":
            killed.with_name("trained").touch()

    def decide(self, view):
        if self.config.event == "loops_later" and (Path(os.environ["EVENTS"]) / "trained").exists():
            while not self.training:
                pass
        if self.config.event == "nan" and not self.training:
            return Decision(scale=torch.full(view.call.valid[..., None].shape, float("nan")))
        return super().decide(view)
