from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.cli.terminal_text import fits, fitting, in_parts, listed, wrapped

PROSE = "Skips tokens by the value of a gate that is trained with the model and closes early"
ROW = {"name": "gateskip", "what": PROSE, "parameters": "shape, weight, budget, stride, kv, threshold", "n": "1"}
WORDS = st.lists(st.text("abcdefghij", min_size=1, max_size=12), min_size=1, max_size=30).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(50, 200))
def test_a_table_keeps_every_word_whole_and_to_the_width_where_it_can(cells, width):
    rows = [dict(zip(("method", "decision MACs per token", "n"), one, strict=True)) for one in cells]
    text = fitting(rows, width)
    assert {word for row in cells for cell in row for word in cell.split()} <= set(text.split())
    if fits(rows, width):
        assert max(map(len, text.splitlines())) <= width
    for row in rows:
        row["method"] = row["method"].replace(" ", "")[:width]  # a name
    paragraphs = listed(rows, width)
    assert max(map(len, paragraphs.splitlines())) <= width
    assert {word for row in rows for cell in row.values() for word in cell.split()} <= set(paragraphs.split())


def test_prose_is_wrapped_where_it_has_to_be_and_a_path_never():
    assert PROSE in fitting([ROW], 300) and PROSE not in fitting([ROW], 80)
    path = "/somewhere/" + "deep/" * 30 + "mine.py"
    assert path in fitting([{"name": "a", "from": path, "what": PROSE}], 80)
    assert not fits([{"name": "a", "from": path}], 80) and fitting([], 80) == ""
    assert "---" in listed([ROW, ROW], 140) and "---" not in listed([ROW, ROW], 60)


@given(st.integers(1, 12), st.integers(30, 120))
def test_many_short_columns_go_on_below(columns, width):
    rows = [{"": name, **{f"can do\n{number}": "yes" for number in range(columns)}} for name in ("gateskip", "mod")]
    text = in_parts(rows, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("yes") == 2 * columns and text.count("gateskip") == text.count("\n\n") + 1


def test_commands_are_not_broken():
    text = wrapped("Please do give `adaptive-bench list runs --json` and look at what it says of them.", 40)
    assert "`adaptive-bench list runs --json`" in text.splitlines()[1]
    assert max(map(len, text.splitlines())) <= 40
