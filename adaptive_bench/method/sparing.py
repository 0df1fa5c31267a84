"""Spared branches: branches that every token executes, and the savings that the other branches have to make up for.

Which branches to spare is measured on the model (`adaptive_bench.model.interventions`) and given to the method. The
engine then runs them for all tokens without asking the method. A method is written as if nothing were spared: its dial,
its target and its sites refer to all branches at which it may skip. This module converts between a share of all
token-branches and the share that the remaining branches have to skip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from adaptive_bench.backbone import Branch, Site
from adaptive_bench.error_origin import in_plugin
from adaptive_bench.errors import PluginFault, UsageError, message_of
from adaptive_bench.method.dial import DialSpec, DialTable, asked_saving
from adaptive_bench.method.thresholds import Thresholds


class Sparing(nn.Module):
    """The part of every method that handles spared branches.

    Attributes:
        spares: Whether the method decides for single tokens and can therefore spare some sites. False for early exit,
            which skips everything from the exit on, and for methods whose dial is a number of layers.
        spared: Sites at which every token executes and the method is not asked.
        keep_first: The first token of every text executes everything.
    """

    spares: ClassVar[bool] = True
    spared: frozenset[Site]
    keep_first: bool

    if TYPE_CHECKING:  # defined by the subclass `Method`
        unit: ClassVar[str]
        solves_dial: ClassVar[bool]
        backbone_size: tuple[int, int]
        thresholds: Thresholds | None
        dial_table: DialTable
        value: float

        @property
        def dial(self) -> DialSpec: ...
        @property
        def max_saved_tokens(self) -> float: ...
        @property
        def eligible_sites(self) -> frozenset[Site]: ...
        @property
        def decides_by_layer(self) -> bool: ...
        def dial_for(self, saved_tokens: float) -> float: ...

    def set_spared(self, sites: Collection[Site], keep_first: bool = False) -> None:
        """Spare these sites; call this before training and calibration.

        A method that cannot spare sites (`spares`) stays unchanged. A method that decides for both branches of a layer
        at once spares the whole layer.
        """
        layers, sites = self.backbone_size[0], {Site(*site) for site in sites}
        if unknown := sites - every_branch(range(layers)):
            raise UsageError(
                f"Spared sites are attention and MLP of layers 0 to {layers - 1}, got {next(iter(unknown))!r}. Write "
                f'Site(0, "mlp").'
            )
        if not self.spares:
            return
        whole = every_branch(site.layer for site in sites) if self.decides_by_layer else frozenset(sites)
        if (eligible := self.eligible_sites) and eligible <= whole:
            raise UsageError(
                f"At least one site must be left at which tokens may skip, got all of them spared ("
                f"{described(eligible)} of {type(self).__name__}). Spare fewer, or give it other parameters."
            )
        self.spared, self.keep_first = whole, bool(keep_first)
        if self.thresholds is not None and whole:
            spared = {site.number for site in whole}
            self.thresholds = Thresholds(site for site in self.thresholds.sites if site not in spared)

    def is_spared(self, site: Site) -> bool:
        """Whether every token executes the site, which may be a whole layer."""
        return (Site(site.layer, "attention") if site.branch == "layer" else site) in self.spared

    @property
    def skippable_sites(self) -> frozenset[Site]:
        """Branches at which some token may skip at some dial value: the eligible ones that are not spared."""
        return self.eligible_sites - self.spared

    @property
    def max_saving(self) -> float:
        """Largest share of all token-branches that the dial can skip."""
        return self.max_saved_tokens * self._left

    @property
    def target(self) -> float:
        """See `Method`. Set as a share of all token-branches; read as the share that the remaining sites must skip."""
        return self._target if not self.spared else min(self._target / self._left, self.max_saved_tokens)

    @target.setter
    def target(self, share: float) -> None:
        self._target = share

    @property
    def target_of_all(self) -> float:
        """The target as it was set: a share of all token-branches."""
        return self._target

    @property
    def _left(self) -> float:
        """Share of the eligible sites that are not spared."""
        if not self.spared or not (eligible := self.eligible_sites):
            return 1.0
        return len(eligible - self.spared) / len(eligible)

    def checked_dial(self, saved_tokens: float) -> float:
        """The dial value expected to skip that share of all token-branches, checked because a plugin may have written
        `dial_for`. `dial_for` is asked for the share that the remaining sites have to skip.
        """
        measured = self.solves_dial or not self.spared  # a solved dial was measured over all token-branches
        value = self.dial_for(saved_tokens if measured else min(saved_tokens / self._left, self.max_saved_tokens))
        try:
            return self.dial.check(value)
        except UsageError as error:
            raise PluginFault(
                f"What dial_for of {in_plugin(type(self))} gives for a saving of "
                f"{saved_tokens:g} is no value of its dial: {message_of(error)}"
            ) from error

    @property
    def claimed_saving(self) -> float | None:
        """Share of all token-branches that the current dial value claims to skip, whatever is skipped in the end.

        It is the saving for which `checked_dial` gives this value. For a solved dial it is the saving measured on
        calibration text, or `None` if nothing was measured.
        """
        if self.value == self.dial.skip_nothing:
            return 0.0
        if self.solves_dial:
            return self.dial_table.saving_at(self.dial.travel(self.value))
        return asked_saving(self.dial_for, self.value, self.max_saved_tokens) * self._left


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
