"""Which methods are tried with which families, where the whole product would take half an hour."""

import pytest

# Each asks something else of a family: gates at every branch, chosen tokens, an exit between layers, layers left out,
# a choice before the layers run.
KINDS = ("gateskip", "mod", "calm", "static_depth", "prompt_router")


def covering(methods, families):
    """Pairs of method and family: every method on one family in turn, and every family with one method of each kind."""
    in_turn = {(method, families[number % len(families)]) for number, method in enumerate(methods)}
    return sorted(in_turn | {(kind, family) for kind in KINDS for family in families})


def each_once(*axes):
    """As many rows as the longest axis is long, every value of every axis in one of them."""
    return [tuple(axis[number % len(axis)] for axis in axes) for number in range(max(map(len, axes)))]


def slow(*values):
    """Values of a parametrised test that are tried by the slow tests alone."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
