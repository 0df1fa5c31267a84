"""Hostile strings in an entry, in every place that holds a text: none acts on the page, or on what reads its files."""

import json
import re

import pyarrow
import pytest
import yaml
from pyarrow import parquet

from adaptive_bench.leaderboard.boards import read_board
from adaptive_bench.leaderboard.page import build
from adaptive_bench.leaderboard.plain import block, markdown, plain

ACT = "document.title='acted'"
TEXTS = (
    f"<script>{ACT}</script>",
    f"<img src=x onerror={ACT}>",
    f"</style><script>{ACT}</script>",
    f"<!--<script>{ACT}",
    f'" onmouseover="{ACT}" x="',
    f"' autofocus onfocus={ACT} x='",
    f"[x](javascript:{ACT})",
    "![x](https://evil.example/p.png)",
    "www.evil.example",
    "=cmd|'/C calc'!A0",
    "-2+3",
    "../../etc/passwd",
    "a | b",
    "{{ 7 * 7 }}",
    "__proto__",
    "&lt;b&gt;",
    "1e999",
)
REFUSED = ("a\x1b[31mred", "right\u202eleft", "a\nb", "a\x00b", "x" * 5000)


def free_texts(text):
    """That text in every place that is shown and is no name of a row."""

    def change(folder):
        _rows(folder / "texts.parquet", {"written": text, "target": text})
        _rows(folder / "training.parquet", {"order_sha256": text, "made_with": text})
        facts = dict.fromkeys(("causality", "kv_policy", "executor", "code", "variant"), text)
        (folder / "methods.json").write_text(json.dumps({"methods": {"gateskip": facts, text: facts}}))
        for file, values in (
            ("about.yaml", {"authors": [text], "affiliation": text}),
            ("config.yaml", {"model": text}),
        ):
            known = yaml.safe_load((folder / file).read_text())
            (folder / file).write_text(yaml.safe_dump(known | values))

    return change


def names(text):
    """That text as every name in a row."""

    def change(folder):
        columns = ("task", "eligible", "projected_shape", "made_with", "model", "recipe", "task_version")
        _rows(folder / "points.parquet", dict.fromkeys(columns, text), lambda row: row | {"scores": [(text, 0.5)]})
        documents = parquet.read_table(folder / "documents.parquet")
        columns = [text if "," in name else name for name in documents.column_names]
        parquet.write_table(documents.rename_columns(columns), folder / "documents.parquet")

    return change


def _rows(file, values, change=lambda row: row):
    table = parquet.read_table(file)
    rows = [change(row | values) for row in table.to_pylist()]
    parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), file)


def _harmless(site):
    """Nothing in the files of a board is markup or a link."""
    for path in (path for path in site.rglob("*") if path.suffix in (".html", ".md")):
        assert not re.search(r"(?<!\\)<(script>document|img src=x)", path.read_text())
    assert "](" not in (site / "board.md").read_text()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_string_does_not_act(changed, browser, watched, tmp_path, text):
    folder = changed(free_texts(text))
    site = tmp_path / "site"
    assert build([folder / "table.json"], site) == []
    with watched(browser) as opened:
        for path in (site / "index.html", site / "methods" / "gateskip.html"):
            page = opened(path, "file:", "", 1280, "light")
            page.mouse.move(300, 300)
            assert page.title() != "acted" and not page.query_selector("iframe, script, a[href^='javascript']")
    _harmless(site)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_name_is_refused_or_harmless(changed, tmp_path, text):
    folder = changed(names(text))
    said = build([folder / "table.json"], tmp_path / "site")
    assert [one for one in said if re.search(r"without markup", one)] == said
    _harmless(tmp_path / "site")


@pytest.mark.parametrize("text", REFUSED, ids=["escape", "direction", "newline", "nothing", "long"])
@pytest.mark.parametrize("place", [names, free_texts])
def test_what_is_no_line_of_text_is_refused_without_being_repeated(changed, place, text):
    folder = changed(place(text))
    board = read_board([folder / "table.json"])
    (said,) = board.refused
    assert not board.rows and said.isprintable() and len(said) < 1200


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
