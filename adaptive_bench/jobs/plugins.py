"""Which plugins some work runs the code of, and which of it is not done beside that of others."""

from __future__ import annotations

from collections.abc import Iterable

from adaptive_bench import processes, registry


def needs_own_process(method: str) -> bool:
    """Whether what a method does is done in processes of its own: it is a plugin's, and can be loaded there."""
    of_plugin = method in registry.names("methods") and registry.is_foreign("methods", method)
    # Several that share a job load the same.
    return of_plugin and registry.has_source("methods", method) and processes.world().is_single


def named_plugins(methods: Iterable[str], tasks: Iterable[str] = ()) -> str | None:
    """Those of some methods and tasks that come from plugins, as an error names them; `None` without any."""
    groups: list[tuple[registry.Group, Iterable[str]]] = [("methods", methods), ("tasks", tasks)]
    found = [
        f"the {registry.one_of(group)} {name!r} of {registry.origin(group, name)}"
        for group, names in groups
        for name in sorted(_registered(names, group))
        if registry.is_foreign(group, name)
    ]
    return " or ".join(found) or None


def _registered(names: Iterable[str], group: registry.Group) -> set[str]:
    return {name.partition(":")[0] for name in names} & set(registry.names(group))
