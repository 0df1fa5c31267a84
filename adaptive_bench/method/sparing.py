"""Branches that a method leaves to every token (`spared`), and what shares of all token-branches mean in spite of it.

Which they are is measured on the model (`adaptive_bench.model.interventions`) and given to the method; the engine then
runs them for all tokens and asks nobody. A method is written as if nothing were spared: its dial, its target and the
sites it names are those of all branches at which it may skip. What the others have to skip in their place is worked out
here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from adaptive_bench.backbone import Branch, Site
from adaptive_bench.errors import PluginFault, UsageError, message_of
from adaptive_bench.faults import in_plugin
from adaptive_bench.method.dial import DialSpec, DialTable, asked_saving
from adaptive_bench.method.thresholds import Thresholds


class Sparing(nn.Module):
    """What every method has of it.

    Attributes:
        spares: Whether it decides for single tokens, and so can leave some sites alone. An exit skips the end of the
            network whatever it costs, and a number of layers is chosen by other rules: those say no.
        spared: Sites at which every token executes and the method is not asked.
        keep_first: The first token of every text executes everything.
    """

    spares: ClassVar[bool] = True
    spared: frozenset[Site]
    keep_first: bool

    if TYPE_CHECKING:  # what the class for authors has
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
        """Leave these sites to every token: before anything is trained or calibrated. A method that cannot is left as
        it is (`spares`); one that decides for both branches of a layer at once leaves the whole layer alone.
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
                f"Some site is left at which tokens may skip, got {described(eligible)} of {type(self).__name__}, all "
                f"of which are spared. Spare fewer, or give it other parameters."
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
        """See `Method`. Set as a share of all token-branches; read as what the sites that are left have to skip."""
        return self._target if not self.spared else min(self._target / self._left, self.max_saved_tokens)

    @target.setter
    def target(self, share: float) -> None:
        self._target = share

    @property
    def target_of_all(self) -> float:
        """The target as it was set, a share of all token-branches."""
        return self._target

    @property
    def _left(self) -> float:
        """Share of the eligible sites that are not spared."""
        if not self.spared or not (eligible := self.eligible_sites):
            return 1.0
        return len(eligible - self.spared) / len(eligible)

    def checked_dial(self, saved_tokens: float) -> float:
        """The dial value expected to skip that share of all token-branches: what `dial_for`, which a plugin may have
        written, gives for what the sites that are left have to skip.
        """
        measured = self.solves_dial or not self.spared  # what was solved for is measured of all token-branches
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
        """Share of all token-branches that the current dial value says it skips, whatever is skipped in the end.

        The saving that `checked_dial` answers with this value; of a dial that was solved for, the one measured there on
        calibration text, and `None` where nothing was measured.
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
    """`layers 1-7`, `attention of layers 3-6`, `layers 1, 3, 5`; `none` without any."""
    layers = {branch: sorted(site.layer for site in sites if site.branch == branch) for branch, _ in _BRANCHES}
    if not any(layers.values()):
        return "none"
    if layers["attention"] == layers["mlp"]:
        return _numbered(layers["mlp"])
    return ", ".join(f"{name} {_numbered(layers[branch])}" for branch, name in _BRANCHES if layers[branch])


def _numbered(layers: list[int]) -> str:
    """Runs of three and more as `1-7`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(texts)}"
