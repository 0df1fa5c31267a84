import pytest

from adaptive_bench.leaderboard.plain import block, cell, markdown, plain


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@A", " =1", "\t=1", "\r=1"])
def test_no_text_of_a_spreadsheet_is_a_formula(text):
    assert cell(text).startswith("'")


def test_numbers_of_a_spreadsheet_stay_numbers():
    assert cell(-0.5) == -0.5
    assert cell("gateskip") == "gateskip"


def test_plain_text_has_no_escapes_no_directions_and_an_end():
    assert plain("a\x1b[31mb\u202ec\nd") == "a[31mbc d"
    assert len(plain("x" * 10_000)) == 500
    assert block("a\x1b\nb") == "a\nb"


@pytest.mark.parametrize("text", ["[x](y)", "<b>", "a|b", "![x](y)", "`c`", "*d*"])
def test_markdown_shows_marks_as_they_are(text):
    assert all(f"\\{letter}" in markdown(text) for letter in text if not letter.isalnum())


@pytest.mark.parametrize("text", ["https://evil.example", "www.evil.example", "JAVASCRIPT:x"])
def test_markdown_makes_no_link_of_an_address(text):
    assert "<!-- -->" in markdown(text)
