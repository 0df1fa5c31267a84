"""Figures of how things work: no number in them was measured."""

from __future__ import annotations

from typing import get_args

from adaptive_bench.docs.drawing import Drawing
from adaptive_bench.method import KVPolicy

_WORDS = ("Tom", "has", "12", "red", "pears", ".")
_KEEP = (True, False, True, True, False, True)
# What the cache of a layer holds for a token that skips its attention.
_LEFT = {"recompute": "from h", "copy_below": "copied", "evict": "none", "defer": "later"}


def branch() -> Drawing:
    """One branch: who executes it, what comes out, and what each KV policy leaves of those who do not."""
    drawing = Drawing(
        430,
        392,
        "Six tokens at one branch. Four are kept: they run it, and their state becomes h + s f(h). Two are skipped: "
        "their state h passes by unchanged. Below, what the cache holds for the skipped two under each KV policy.",
    )
    left, step, wide = 118, 51, 46
    columns = [left + step * place for place in range(len(_WORDS))]
    for x, word, keep in zip(columns, _WORDS, _KEEP, strict=True):
        middle = x + wide / 2
        drawing.text(middle, 20, word, "faint", anchor="middle")
        drawing.box(x, 30, wide, 24, "soft")
        drawing.text(middle, 46, "h", anchor="middle")
        drawing.line([(middle, 54), (middle, 72)], "rule")
        drawing.box(x + 11, 72, 24, 24, "accent" if keep else None, "accent", dashed=not keep)
        drawing.text(middle, 88, "1" if keep else "0", "paper" if keep else "accent", anchor="middle", bold=True)
        if keep:
            drawing.line([(middle, 96), (middle, 118)], "accent", arrow=True)
            drawing.box(x, 118, wide, 24, "soft", "accent")
            drawing.text(middle, 134, "f(h)", anchor="middle")
            drawing.line([(middle, 142), (middle, 164)], "accent", arrow=True)
        else:
            drawing.line([(middle, 96), (middle, 164)], "second", dashed=True, arrow=True)
        drawing.box(x, 164, wide, 24, "soft" if keep else "warm")
        drawing.text(middle, 180, "h + s f" if keep else "h", anchor="middle", size=11)
    for y, words in ((46, "state"), (88, "keep mask"), (134, "branch"), (180, "next state")):
        drawing.text(8, y, words)
    drawing.line([(8, 206), (424, 206)], "rule", width=1)
    drawing.text(8, 228, "Keys and values the layer's cache holds, by KV policy", bold=True)
    for row, policy in enumerate(get_args(KVPolicy)):
        y = 244 + 36 * row
        drawing.text(8, y + 16, policy)
        for x, keep in zip(columns, _KEEP, strict=True):
            nothing = not keep and policy in ("evict", "defer")
            drawing.box(x, y, wide, 24, "soft" if keep else None if nothing else "warm", dashed=nothing)
            words = "own" if keep else _LEFT[policy]
            drawing.text(x + wide / 2, y + 16, words, "faint" if nothing else "ink", anchor="middle", size=11)
    return drawing


# By token the sites that it executes. The second one exits after two sites.
DECISIONS = ((1, 1, 1, 1, 1), (1, 1, 0, 0, 0), (1, 1, 0, 1, 1), (1, 0, 1, 1, 1), (1, 1, 1, 1, 0), (1, 1, 1, 0, 1))
DRAWN = (2, 3, 0, 5, 1, 4)  # by token, whose decisions it takes in the control


def shuffled() -> Drawing:
    """A method's decisions and those of its shuffled control, which skips as often at every site."""
    drawing = Drawing(
        430,
        244,
        "Left, which of six tokens execute each of five sites. Right, the shuffled control: every token does what "
        "another token did at all sites, so that each site executes as many tokens as before, but not the same ones.",
    )
    sites, cell = len(DECISIONS[0]), 24
    panels = ((62, "the method decides", DECISIONS), (260, "the shuffled control", [DECISIONS[one] for one in DRAWN]))
    for left, words, decisions in panels:
        drawing.text(left, 18, words, bold=True)
        for token, executes in enumerate(decisions):
            x = left + cell * token
            drawing.text(x + 10, 40, str(token + 1), "faint", anchor="middle")
            for site, runs in enumerate(executes):
                y = 48 + cell * site
                drawing.box(x, y, 20, 20, "accent" if runs else None, "accent" if runs else "faint", dashed=not runs)
        for site in range(sites):
            counted = sum(executes[site] for executes in decisions)
            drawing.text(left + cell * len(decisions) + 2, 63 + cell * site, str(counted), "faint", size=11)
    for site in range(sites):
        drawing.text(8, 63 + cell * site, f"site {site + 1}")
    drawing.text(8, 40, "token", "faint")
    drawing.text(8, 190, "does what token ... did", "faint")
    for token, drawn in enumerate(DRAWN):
        x = 270 + cell * token
        drawing.text(x, 190, str(drawn + 1), "second", anchor="middle", bold=True)
    drawing.box(8, 206, 16, 16, "accent", "accent")
    drawing.text(30, 219, "executes")
    drawing.box(100, 206, 16, 16, None, "faint", dashed=True)
    drawing.text(122, 219, "skips")
    drawing.text(176, 219, "beside a row: how many execute", "faint", size=11)
    return drawing
