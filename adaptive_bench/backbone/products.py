"""Chooses the fastest form of each linear map for few rows on this processor, by measuring it once.

Libraries differ: at 8 rows W x^T takes a fifth less time than x W^T on one make of processor, and half as much again
on another. So there is no fixed list. At the first use of a shape both forms are timed in turn, in a fraction of a
second, and the result is kept in a file in the user's cache folder, by processor, threads and version of torch. The
form other than torch's own is taken only if it gains more than noise.

Forms differ in rounding, so results may differ between machines by rounding; on one machine they stay the same once a
shape was measured. Training measures nothing: it always computes x W^T.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.hardware import processor
from adaptive_bench.store import atomic

Form = Literal["plain", "transposed"]
FORMS: tuple[Form, ...] = ("plain", "transposed")
VARIABLE = "ADAPTIVE_BENCH_PRODUCTS"  # `fixed`: nothing is measured, and every map is computed in the plain form

# With more rows, arithmetic takes longer than reading the weights, and the order of the factors no longer matters.
_FEW_ROWS = 64
_ROUNDS = 5
_GAIN = 0.95  # a form must take at most this share of the plain form's time, and be faster in all rounds but one
_TRIFLE_S = 2e-5  # for faster maps, looking up the result would cost as much as the best form gains
_LIMIT_S = 0.3  # time to measure one shape; huge maps get fewer rounds
_READ_BYTES = 1 << 26  # more than one core's share of the caches
_SCHEMA = 2  # in schema 1 every form was timed while its own code was not in the caches


def compute(form: Form, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The linear map [O, I] of states [M, I] in one of its forms."""
    if form == "plain":
        return functional.linear(states, weight, bias)
    output = (weight @ states.t()).t()
    return output if bias is None else output + bias


class Products:
    """Chooses the form of every linear map of one model.

    Args:
        weights: Returns the weights that a decode step reads. They are read before every timing, as a step reads them
            before it returns to the same weight, because whether a weight is still in the caches matters more than the
            form.
    """

    def __init__(self, weights: Callable[[], Iterable[Tensor]]) -> None:
        self._weights = weights
        self._chosen: dict[tuple[object, ...], Form] = {}

    def fastest(self, states: Tensor, weight: Tensor) -> Form:
        """The fastest form for mapping states [M, I] with a weight [O, I]; both are on a CPU and have one dtype."""
        rows = states.shape[0]
        if rows > _FEW_ROWS:
            return "plain"
        key = (rows, weight.shape, weight.dtype, torch.get_num_threads())
        form = self._chosen.get(key)
        if form is None:
            form = self._chosen[key] = self._find(states, weight)
        return form

    def _find(self, states: Tensor, weight: Tensor) -> Form:
        how = os.environ.get(VARIABLE) or "measured"
        if how not in ("measured", "fixed"):
            raise UsageError(f"{VARIABLE} is measured or fixed, got {how!r}. Unset it, or set one of these.")
        if how == "fixed":
            return "plain"
        neighbours = _first_bytes(self._weights())
        name = _name(states, weight, neighbours)
        file = cache_file()
        known = _read(file)
        if name not in known:
            form = _measure(states, weight, neighbours)
            if form is None:
                return "plain"
            known = _read(file)  # another process may have finished first: then all processes use its result
            known.setdefault(name, form)
            with suppress(EnvironmentProblem):  # if nothing can be written, the next process measures again
                atomic.write_json(
                    file, {"schema": _SCHEMA, "machine": machine(), "fastest": dict(sorted(known.items()))}
                )
        return known[name]


def machine() -> dict[str, str | int]:
    """The properties of the machine on which the times depend, besides shapes."""
    return {
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def cache_file() -> Path:
    """The file with this machine's results."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    here = re.sub(r"[^A-Za-z0-9.+]+", "-", " ".join(map(str, machine().values())))
    return home / "adaptive-bench" / "products" / f"{here}.json"


def _read(file: Path) -> dict[str, Form]:
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # absent or damaged: measure again
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["schema"] == _SCHEMA and kept["machine"] == machine():
            return {name: form for name, form in kept["fastest"].items() if form in FORMS}
    return {}


def _name(states: Tensor, weight: Tensor, neighbours: list[Tensor]) -> str:
    """The readable key of a result: rows, shape, dtype, and how much is read between two uses of a weight."""
    read_mib = min(sum(tensor.nbytes for tensor in neighbours), _READ_BYTES) >> 20
    between = 1 << (read_mib - 1).bit_length() if read_mib else 0  # rounded up to a power of two
    shape = f"{states.shape[0]} x {weight.shape[1]} -> {weight.shape[0]}"
    kind = str(weight.dtype).removeprefix("torch.")
    return f"{shape}, {kind}, {between} MiB read between"


def _first_bytes(weights: Iterable[Tensor]) -> list[Tensor]:
    """The first weights that together fill the caches."""
    total, first = 0, []
    for weight in weights:
        if total >= _READ_BYTES:
            break
        first.append(weight.detach())
        total += weight.nbytes
    return first


@torch.no_grad()
def _measure(states: Tensor, weight: Tensor, neighbours: list[Tensor]) -> Form | None:
    """The fastest form: `plain` unless the other gains more than noise; `None` if the choice does not matter."""
    # In a decode step the form has just served another map, so its code is in the caches although the weight is not.
    # The time of a large weight does not depend on that.
    twin = weight.detach().clone() if weight.nbytes <= _READ_BYTES // 4 else None
    # The thread's clock does not count time when others have the core, but misses the work of further threads.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def timed(form: Form) -> float:
        start_s = clock()
        compute(form, states, weight, None)
        return clock() - start_s

    if max(timed(form) for form in (*FORMS, *FORMS)) < _TRIFLE_S:
        return None
    times: Mapping[Form, list[float]] = {form: [] for form in FORMS}
    lost = 0
    begun = time.perf_counter()
    for number in range(_ROUNDS):
        for form in FORMS:
            for other in neighbours:
                other.sum()
            if twin is not None:
                compute(form, states, twin, None)
            times[form].append(timed(form))
        lost += times["transposed"][-1] >= times["plain"][-1]
        if lost > 1 or (number > 1 and time.perf_counter() - begun > _LIMIT_S):
            break
    gains = statistics.median(times["transposed"]) <= _GAIN * statistics.median(times["plain"])
    return "transposed" if lost <= 1 and gains else "plain"
