"""What the shell completes: names of methods with their parameters, of tasks, models and configs; of lists the last
item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adaptive_bench import registry
from adaptive_bench.cli.source_facts import source_facts


def names_of(group: registry.Group) -> Callable[[str], list[str]]:
    """Completes one name of a group."""

    def complete(incomplete: str) -> list[str]:
        return _beginning("", registry.names(group), incomplete)

    return complete


def list_of(group: registry.Group) -> Callable[[str], list[str]]:
    """Completes the last name of a comma list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return _beginning(before + comma, registry.names(group), last)

    return complete


def specs(incomplete: str) -> list[str]:
    """The last method spec of a comma list: a name, or in its brackets a parameter; a plugin's are not read."""
    before, last = _last_spec(incomplete)
    name, bracket, inside = last.partition("[")
    if not bracket:
        return _beginning(before, registry.names("methods"), last)
    if name not in registry.names("methods") or (facts := source_facts("methods", name)) is None:
        return []
    given, comma, begun = inside.rpartition(",")
    named = {part.partition("=")[0] for part in given.split(",")}
    left = (f"{parameter}=" for parameter in facts["parameters"] if parameter not in named)
    return _beginning(f"{before}{name}[{given}{comma}", left, begun)


def _last_spec(text: str) -> tuple[str, str]:
    """A list of specs without its last one, and that one: commas in brackets are between parameters."""
    opened, after = 0, 0
    for place, sign in enumerate(text):
        opened += {"[": 1, "]": -1}.get(sign, 0)
        if sign == "," and not opened:
            after = place + 1
    return text[:after], text[after:]


def _beginning(before: str, names: Iterable[str], begun: str) -> list[str]:
    return [before + name for name in names if name.startswith(begun)]


# By key of a config.
BY_KEY: dict[str, Callable[[str], list[str]]] = {
    "methods": specs,
    "tasks": list_of("tasks"),
    "train_on": list_of("tasks"),
    "model": names_of("models"),
}
