"""Which plugins some work runs the code of, and whether that needs a process of its own."""

from __future__ import annotations

from collections.abc import Iterable

from adaptive_bench import processes, registry


def needs_own_process(name: str, group: registry.Group = "methods") -> bool:
    """Whether what a method or a task does is done in processes of its own: it is a plugin's, and can be loaded there.

    Args:
        name: Of a task with what it is given (`perplexity:letters`), which may be one of lm-eval's own.
        group: `methods` or `tasks`.
    """
    return processes.world().is_single and any(  # several that share a job load the same
        registry.is_foreign(group, one) and registry.has_source(group, one) for one in _registered([name], group)
    )


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
