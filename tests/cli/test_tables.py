import pytest

from adaptive_bench.cli.tables import fitting

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
