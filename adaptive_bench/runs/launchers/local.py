"""The launcher `local`: on this machine, in this process or in several."""

from __future__ import annotations

from adaptive_bench.runs.launchers.order import Launched, Order
from adaptive_bench.runs.workers.launch import carry_out


def launch(order: Order) -> Launched:
    """Do it here and now."""
    return Launched(carry_out(order.plan, order.reporter, order.jobs, order.estimator, order.share, order.overwrite))
