"""Names the places where a method decides: attention and MLP of every layer, or a whole layer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

Branch = Literal["attention", "mlp", "layer"]


class Site(NamedTuple):
    """A place where a method decides: one branch of one layer, or the whole layer."""

    layer: int
    branch: Branch

    @property
    def number(self) -> int:
        """0 .. 2L-1 in execution order; a whole layer has the number of its attention."""
        return 2 * self.layer + (self.branch == "mlp")


_BRANCHES: tuple[tuple[Branch, str], ...] = (("attention", "attention of"), ("mlp", "MLP of"))


def every_branch(layers: Iterable[int]) -> frozenset[Site]:
    """Attention and MLP of some layers."""
    return frozenset(Site(layer, branch) for layer in layers for branch, _ in _BRANCHES)


def described(sites: Collection[Site]) -> str:
    """The sites in words: `layers 1-7`, `attention of layers 3-6`, `layers 1, 3, 5`; `none` if there are none."""
    layers = {branch: sorted(site.layer for site in sites if site.branch == branch) for branch, _ in _BRANCHES}
    if not any(layers.values()):
        return "none"
    if layers["attention"] == layers["mlp"]:
        return _numbered(layers["mlp"])
    return ", ".join(f"{name} {_numbered(layers[branch])}" for branch, name in _BRANCHES if layers[branch])


def _numbered(layers: list[int]) -> str:
    """The layers in words, with runs of three or more as `1-7`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(texts)}"
