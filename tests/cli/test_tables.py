import pytest

from adaptive_bench.cli.terminal_text import fits, fitting, in_parts, listed, wrapped

PROSE = "Skips tokens by the value of a gate that is trained with the model and closes early"
ROWS = [{"name": "gateskip", "what": PROSE, "parameters": "shape, weight, budget, stride, kv, threshold", "n": "1"}]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_prose_is_wrapped_until_the_table_fits(width):
    text = fitting(ROWS, width)
    assert max(map(len, text.splitlines())) <= width
    assert "gateskip" in text
    assert set(PROSE.split()) <= set(text.split())


def test_a_wide_terminal_wraps_nothing():
    assert PROSE in fitting(ROWS, 300)


def test_what_is_no_prose_is_never_broken():
    path = "/somewhere/" + "deep/" * 30 + "mine.py"
    assert path in fitting([{"name": "a", "from": path, "what": PROSE}], 80)


def test_nothing_is_an_empty_text():
    assert fitting([], 80) == ""


def test_what_does_not_fit_is_known_beforehand():
    assert fits(ROWS, 80) and fits([], 10)
    assert not fits([{"name": "a", "from": "x" * 100}], 80)


@pytest.mark.parametrize("width", [40, 80])
def test_many_short_columns_go_on_below(width):
    rows = [{"": name, **{f"can do\n{number}": "yes" for number in range(12)}} for name in ("gateskip", "mod")]
    text = in_parts(rows, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("yes") == 24 and text.count("gateskip") == text.count("\n\n") + 1


def test_commands_are_not_broken():
    text = wrapped("Please do give `adaptive-bench list runs --json` and look at what it says of them.", 40)
    assert "`adaptive-bench list runs --json`" in text.splitlines()[1]
    assert max(map(len, text.splitlines())) <= 40


def test_headers_are_wrapped_as_well():
    text = fitting([{"method": "mod", "decision MACs per token": "1", "share of all MACs": "2"}], 40)
    assert max(map(len, text.splitlines())) <= 40 and "token" in text


@pytest.mark.parametrize(("width", "a_table"), [(60, False), (140, True)])
def test_names_are_listed_as_paragraphs_where_a_table_could_not_be_read(width, a_table):
    text = listed([ROWS[0], ROWS[0] | {"name": "mod", "parameters": ""}], width)
    assert max(map(len, text.splitlines())) <= width
    assert ("---" in text) == a_table
    assert text.count("parameters") == 1
