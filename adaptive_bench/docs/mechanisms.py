"""The figure of drafts and their verification. No number in it was measured."""

from __future__ import annotations

from adaptive_bench.docs.drawing import Drawing

TEXT = ("Tom", "has", "12", "red", "pears", "and")  # what the full model writes
DRAFT = ("has", "12", "big", "pears")  # after `Tom`: the third differs


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
