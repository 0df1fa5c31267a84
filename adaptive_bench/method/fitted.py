"""What a method measures on held-out text before its dial is used, and the text as it reads it.

Which layers matter least, or by what a skipped layer would have scaled its input: such things are measured on a model
with its weights as they are, so they belong to these weights and this text, as thresholds do.
`adaptive_bench.model.fitting` gives a method the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from adaptive_bench.errors import PluginFault, UsageError


class Streams(NamedTuple):
    """The residual stream of the N real tokens of some texts.

    Attributes:
        states: [N, H] before every site at which the method decides, in execution order, and after the last one.
        ends: Boolean [N], the last token of each text.
        prompts: Boolean [N], the tokens of prompts.
    """

    states: list[Tensor]
    ends: Tensor
    prompts: Tensor


class HeldOutText(Protocol):
    """Held-out training text, read by the model on which the method sits."""

    def streams(self) -> Iterator[Streams]:
        """Of some texts at a time, while the method lets everything execute."""

    def loss(self) -> float:
        """Mean cross entropy in nats with the method deciding as it stands, where the texts continue their prompts (all
        of a text that has no prompt). Long collections are thinned out, always to the same texts.
        """


class Fitted:
    """Named tensors that are measured together; none before.

    Args:
        names: Of the tensors.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self._values: dict[str, Tensor] = {}

    @property
    def is_ready(self) -> bool:
        """Whether they were measured."""
        return bool(self._values)

    def __getitem__(self, name: str) -> Tensor:
        """One of them.

        Raises:
            UsageError: They were not measured yet.
        """
        if name not in self._values:
            raise UsageError(
                f"A dial that skips needs what is measured on held-out text ({', '.join(self.names)}), got none "
                "measured. Call model.calibrate(batches, savings) first."
            )
        return self._values[name]

    def set(self, **values: Tensor) -> None:
        """Keep what was measured.

        Raises:
            PluginFault: It is not what `names` says.
        """
        if set(values) != set(self.names):
            raise PluginFault(
                f"What is measured together are {', '.join(self.names)}, got {', '.join(values) or 'nothing'}. Give "
                "`fitted.set` all of them at once."
            )
        self._values = dict(values)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return dict(self._values)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the tensors of `state` back."""
        self._values = dict(state)

    def clear(self) -> None:
        """Forget them (the weights changed)."""
        self._values = {}
