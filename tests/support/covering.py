"""Which methods are tried with which families, where the whole product would take half an hour."""

from collections.abc import Iterable, Sequence

# Each asks something else of a family: gates at every branch, chosen tokens, an exit between layers, layers left out,
# a choice before the layers run.
KINDS = ("gateskip", "mod", "calm", "static_depth", "prompt_router")


def covering(methods: Iterable[str], families: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of method and family: every method on one family in turn, and every family with one method of each kind."""
    in_turn = {(method, families[number % len(families)]) for number, method in enumerate(methods)}
    return sorted(in_turn | {(kind, family) for kind in KINDS for family in families})
