"""FLOPs as PyTorch counts them, by the formulas of its `FlopCounterMode`.

That mode keeps an account for every module and asks of every operator anew whether it is made of others: with it a
training step of a tiny model takes five times as long as without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class ExecutedFlops(TorchDispatchMode):
    """Counts in its block.

    Attributes:
        total: FLOPs of all operators that PyTorch has a formula for; a multiply-accumulate is two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self._undivided: set[Any] = set()  # operators that are not made of others

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        formula = flop_registry.get(function.overloadpacket)
        if formula is None and function not in self._undivided:
            with self:
                output = function.decompose(*args, **named)
            if output is not NotImplemented:
                return output
            self._undivided.add(function)
        output = function(*args, **named)
        if formula is not None:
            self.total += int(formula(*args, **named, out_val=output))
        return output
