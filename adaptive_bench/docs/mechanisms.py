"""Figures of what is done with decisions outside of a benchmark: drafts, and files for other engines. No number in them
was measured.
"""

from __future__ import annotations

from adaptive_bench.docs.drawing import Drawing

TEXT = ("Tom", "has", "12", "red", "pears", "and")  # what the full model writes
DRAFT = ("has", "12", "big", "pears")  # after `Tom`: the third differs
SITES = ((0, "attention"), (0, "mlp"), (1, "attention"), (1, "mlp"))
TOKENS = ("How", "many", "?", "12", ".")
PROMPT = 3  # of `TOKENS`, the others were written
KEEP = ("1111", "1101", "1111", "1011", "1100")


def accepted() -> int:
    """How many tokens of the draft are those of the full model."""
    same = [one == other for one, other in zip(DRAFT, TEXT[1:], strict=False)]
    return same.index(False) if False in same else len(same)


def speculation() -> Drawing:
    """A round: drafts of the turned model, what the full model would have chosen, and what is kept."""
    drawing = Drawing(
        430,
        262,
        f"A round of self-speculative decoding. The model with its dial turned drafts {len(DRAFT)} tokens one by one. "
        f"One call of the full model verifies them: the first {accepted()} are those it chooses too and are kept, the "
        f"next is replaced by its own, and the rest is dropped.",
    )
    left, step, wide, high = 122, 60, 54, 26
    columns = [left + step * place for place in range(len(DRAFT) + 1)]
    for y, words, about in ((58, "draft", "dial turned"), (128, "verify", "full model"), (206, "text", "as if greedy")):
        drawing.text(8, y + 12, words, bold=True)
        drawing.text(8, y + 27, about, "faint", size=11)
    kept = accepted()
    for place, word in enumerate(DRAFT):
        x, good = columns[place], place < kept
        drawing.box(x, 58, wide, high, "soft" if good else None, "accent" if good else "second", dashed=not good)
        drawing.text(x + wide / 2, 75, word, "ink" if good else "second", anchor="middle", size=11.5)
        drawing.text(x + wide / 2, 46, f"call {place + 1}", "faint", anchor="middle", size=11)
        drawing.line([(x + wide / 2, 84), (x + wide / 2, 122)], "rule", arrow=True)
    drawing.box(left - 6, 122, columns[len(DRAFT) - 1] + wide - left + 12, 38, None, "accent")
    drawing.text(columns[len(DRAFT)] + 6, 146, "one call", "faint", size=11)
    for x in columns[kept + 1 : len(DRAFT)]:
        drawing.text(x + wide / 2, 145, "dropped", "faint", anchor="middle", size=11)
    for place in range(kept + 1):
        x, own = columns[place], place == kept
        drawing.box(x, 128, wide, high, "warm" if own else "soft", "second" if own else "accent")
        drawing.text(x + wide / 2, 145, TEXT[1 + place], anchor="middle", size=11.5)
        drawing.line([(x + wide / 2, 160), (x + wide / 2, 200)], "second" if own else "accent", arrow=True)
        drawing.box(x, 206, wide, high, "warm" if own else "soft", "second" if own else "accent")
        drawing.text(x + wide / 2, 223, TEXT[1 + place], anchor="middle", size=11.5)
    drawing.text(columns[0], 20, f"after “{TEXT[0]}”", "faint", size=11)
    drawing.text(
        8, 254, f"{kept} drafts accepted, 1 token of the full model: {kept + 1} from one call", "faint", size=11
    )
    return drawing


def decisions() -> Drawing:
    """A document of the file: its tokens, and for each of them the sites that it executes."""
    drawing = Drawing(
        430,
        268,
        "A document of the file. Each of its tokens, of the prompt and of what was written, has a text of ones and "
        "zeros, one for each site: 1 executes the branch, 0 passes it by and leaves the state as it is.",
    )
    left, step, top, high = 176, 46, 66, 28
    for place, (layer, name) in enumerate(SITES):
        y = top + high * place
        drawing.text(8, y + 18, f"[{layer}, {name}]", size=11.5)
        for number, keep in enumerate(KEEP):
            one = keep[place] == "1"
            x = left + step * number
            drawing.box(x, y + 2, 34, 24, "accent" if one else None, "accent" if one else "second", dashed=not one)
            drawing.text(x + 17, y + 18, keep[place], "paper" if one else "second", anchor="middle", bold=True)
    bottom = top + high * len(SITES)
    for number, (word, keep) in enumerate(zip(TOKENS, KEEP, strict=True)):
        middle = left + step * number + 17
        drawing.text(middle, 54, word, anchor="middle", bold=True)
        drawing.line([(middle, bottom + 4), (middle, bottom + 26)], "rule", arrow=True)
        drawing.text(middle, bottom + 44, keep, "accent", anchor="middle", size=11.5)
    drawing.text(8, 54, "sites", "faint", size=11)
    drawing.text(8, bottom + 44, "keep, token by token", "faint", size=11)
    for first, last, words in ((0, PROMPT, "prompt"), (PROMPT, len(TOKENS), "written")):
        start, end = left + step * first, left + step * (last - 1) + 34
        drawing.line([(start, 32), (end, 32)], "second" if first else "ink", width=2)
        drawing.text((start + end) / 2, 22, words, "second" if first else "ink", anchor="middle", size=11)
    drawing.box(8, bottom + 60, 16, 16, "accent", "accent")
    drawing.text(30, bottom + 73, "executes the branch", size=11)
    drawing.box(176, bottom + 60, 16, 16, None, "second", dashed=True)
    drawing.text(198, bottom + 73, "passes by: nothing is added", size=11)
    return drawing
