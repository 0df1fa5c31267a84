"""Launchers: where the work of a plan is done. Each is a function from an `Order` to what became of it.

Another package adds one with an entry point in the group `adaptive_bench.launchers`.
"""

from adaptive_bench.runs.launchers.order import Launched, Order

__all__ = ["Launched", "Order"]
