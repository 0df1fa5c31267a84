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
            for process in _of_my_job():
                os.kill(process, signal.SIGKILL)
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


def _of_my_job():
    """This process; on Slurm all of the job, as when its memory is used up: this one last."""
    mine = os.environ.get("SLURM_JOB_ID")
    for process in Path("/proc").glob("[0-9]*") if mine else ():
        try:
            belongs = f"SLURM_JOB_ID={mine}".encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        if belongs and process.name != str(os.getpid()):
            yield int(process.name)
    yield os.getpid()
