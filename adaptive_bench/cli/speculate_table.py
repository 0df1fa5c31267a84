"""The record of `adaptive-bench speculate` as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from adaptive_bench.cli.tables import wrapped

_WIDTH = 80
_HEADER = ("draft saves %", "accepted %", "tok/verif.", "tok/s", "x", "MB/tok", "MFLOP/tok", "equal")
_SHOWN = 5  # differences


def shown(record: Mapping[str, Any]) -> str:
    """A table for each batch size, and what it says in words."""
    parts = [_title(record)]
    for batch in record["batches"]:
        parts += [_table(batch, record["texts"]), *(wrapped(line, _WIDTH) for line in _sentences(batch))]
    parts.append(
        "tok/verif.: tokens a row gets from one verification. tok/s: new tokens of all\n"
        "rows a second, prompts included; medians. x: greedy time over ours, in the same\n"
        "round. MB, MFLOP: weights read and executed FLOPs a token, without prompts.\n"
        "equal: texts that are those of greedy decoding, token by token."
    )
    return "\n\n".join(parts)


def _title(record: Mapping[str, Any]) -> str:
    settings, machine = record["settings"], record["environment"]
    cut = record["shortened_prompts"]
    return wrapped(
        f"{record['model']}, drafts of up to {settings['drafts']} tokens by {record['method']}; {record['texts']} "
        f"prompts of {', '.join(settings['tasks'])}{f' ({cut} shortened)' if cut else ''}, at most "
        f"{settings['new']} new tokens. {machine['device_name']}, {machine['threads']} threads, "
        f"{machine['precision']}.",
        _WIDTH,
    )


def _table(batch: Mapping[str, Any], texts: int) -> str:
    greedy = batch["greedy"]
    rows = [["greedy", "", "1.00", _speed(greedy), "", *_cost(greedy), ""]]
    for point in batch["points"]:
        rows.append(
            [
                _drafted(point),
                _percent(point["acceptance"]),
                "n/a" if point["tokens_per_verification"] is None else f"{point['tokens_per_verification']:.2f}",
                _speed(point),
                f"{point['speedup']['median']:.2f}",
                *_cost(point),
                f"{point['equal_texts']}/{texts}",
            ]
        )
    align = ["right"] * len(_HEADER)
    body = tabulate([list(_HEADER), *rows], tablefmt="plain", colalign=align, disable_numparse=True)
    return f"Batch {batch['batch']}\n\n{body}"


def _sentences(batch: Mapping[str, Any]) -> list[str]:
    """Of texts that differ where, and whether rounding explains it."""
    found = []
    for point in batch["points"]:
        differences = point["differences"]
        for each in differences[:_SHOWN]:
            found.append(f"Draft saving {_drafted(point)} %, prompt {each['text']}: {_difference(each)}")
        if more := len(differences) - _SHOWN:
            found += [f"Draft saving {_drafted(point)} %: {more} more texts differ."] if more > 0 else []
    return found


def _difference(each: Mapping[str, Any]) -> str:
    where = f"differs from greedy at new token {each['position'] + 1}"
    if each["gap"] is None:
        return f"{where}, where one of the two has ended: a defect."
    tokens = f"{each['greedy']} and {each['speculative']}"
    says = "a near-tie" if each["near_tie"] else "a defect"
    return (
        f"{where}. The full model's logits of {tokens} are {abs(each['gap']):.2e} apart; rounding explains up to "
        f"{each['bound']:.2e}: {says}."
    )


def _drafted(point: Mapping[str, Any]) -> str:
    """What drafting saved, in % of the token-branches; where it wrote nothing, what was asked for."""
    saved = point["draft_saved"]["tokens"]
    return _percent(point["saving"] if saved is None else saved)


def _speed(of: Mapping[str, Any]) -> str:
    return f"{of['tokens_per_s']['median']:.0f}"


def _cost(of: Mapping[str, Any]) -> list[str]:
    costs = of["bytes_per_token"], of["flops_per_token"]
    return ["n/a" if cost is None else f"{cost / 1e6:.2f}" for cost in costs]


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f}"
