"""Sixty hostile entries: none acts, each is refused or shown as plain text, and the build goes on."""

import gzip
import json
import re

import pytest

from adaptive_bench.leaderboard.rows import Rejected, checked
from adaptive_bench.leaderboard.site import build
from adaptive_bench.store.results import write_run

GOOD = {
    "method": "gateskip[gate=scalar]",
    "semantics": "bench",
    "task": "nano_math",
    "metric": "exact_match,strict-match",
    "axis": "net",
    "phase": "all",
    "level": 0.1,
    "score": 0.75,
    "low": 0.5,
    "high": 0.9,
    "seeds": 3,
    "saved_net": 0.1,
    "status": "ok",
}
TEXTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "javascript:alert(1)",
    "[x](javascript:alert(1))",
    "![x](https://evil.example/p.png)",
    "https://evil.example",
    "www.evil.example",
    "=HYPERLINK(1)",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\windows",
    "a\x1b[31mred",
    "a\x00b",
    "right\u202eleft",
    "a | b",
    "a\nb",
    "{{ 7 * 7 }}",
    "x" * 10_000,
)
FIELDS = ("method", "task", "metric")
VALUES = (
    ("score", float("nan")),
    ("score", float("inf")),
    ("score", 1e300),
    ("score", 10**400),
    ("score", "0.9"),
    ("score", True),
    ("score", [0.9]),
    ("score", 1.5),
    ("score", -0.1),
    ("level", 2),
    ("level", None),
    ("level", "0.1"),
    ("low", 0.95),
    ("low", None),
    ("seeds", -1),
    ("seeds", 2.5),
    ("seeds", 10**30),
    ("saved_net", 1.5),
    ("saved_net", -1e9),
    ("axis", "nett"),
    ("axis", ["net"]),
    ("phase", "both"),
    ("semantics", "<b>"),
    ("status", "<b>ok</b>"),
    ("status", {}),
    ("timing", "<b>"),
    ("timing", "https://evil.example"),
    ("projected_shape", "../x"),
    ("parameters_added", -1),
    ("parameters_added", "many"),
    ("train_flops", float("inf")),
    ("beyond_target", "yes"),
    ("method", None),
    ("method", {"name": "x"}),
    ("task", 7),
)
HOSTILE = [
    *((f"{field} {text[:12]!r}", GOOD | {field: text}) for text in TEXTS for field in FIELDS),
    *((f"{key} {str(value)[:12]}", GOOD | {key: value}) for key, value in VALUES),
    *((f"row {value!r}", value) for value in (None, 3, "row", [], {})),
]


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("entry", [entry for _, entry in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_a_hostile_entry_is_refused_without_being_repeated(entry):
    # what looks like a metric of its own name, or begins like a spec, may pass as the plain text it is
    try:
        row = checked(entry)
    except Rejected as why:
        assert len(str(why)) < 150 and str(why).isprintable()
    else:
        texts = [value for value in row.values() if isinstance(value, str)]
        assert all(re.fullmatch(r"[A-Za-z0-9_][\w .,=\[\]@+()-]*", text) for text in texts)


def test_a_good_row_passes_with_its_values_and_without_unknown_keys():
    row = checked(GOOD | {"evil": "<b>"})
    assert {key: row[key] for key in GOOD} == GOOD
    assert "evil" not in row


def test_the_build_goes_on_and_says_what_it_left_out(tmp_path):
    runs = tmp_path / "runs" / "0123456789abcdef"
    runs.mkdir(parents=True)
    rows = [entry for _, entry in HOSTILE if "10000000" not in str(entry)]
    (runs / "table.json").write_text(json.dumps([GOOD, *rows]).replace("NaN", "1e999").replace("Infinity", "1e999"))
    about = {
        "records": ["../../../etc", 7, "x" * 5000],
        "failures": ["<script>alert(1)</script>\x1b[2J"],
        "warnings": 3,
    }
    write_run(runs, about | {"match_on": "<b>", "match_phase": ["x"]})
    (runs / "config.yaml").write_text("model: </script><script>alert(1)</script>\x1b]0;evil\x07")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "table.json").write_text("[" * 100_000)
    nothing = tmp_path / "nan"
    nothing.mkdir()
    (nothing / "table.json").write_text("[{'a': NaN}]".replace("'", '"'))
    for folder in (damaged, nothing):
        write_run(folder, {})
    said = build([folder / "table.json" for folder in (runs, damaged, nothing)], tmp_path / "site")
    assert sum("left out" in text for text in said) >= 50
    page = (tmp_path / "site" / "index.html").read_text()
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file() and path.suffix != ".parquet"]
    assert {path.suffix for path in files} == {".html", ".css", ".md", ".json", ".js", ".gz"}
    for path in files:
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        assert "\x1b" not in text and "\u202e" not in text
    assert "<script>alert" not in page and page.count("</script>") == 2 and page.count("<script") == 2
    markdown = (tmp_path / "site" / "board.md").read_text()
    assert "](" not in markdown and "<script" not in markdown and "https:" not in markdown
    csv = "".join(gzip.decompress(path.read_bytes()).decode() for path in files if path.name.endswith(".csv.gz"))
    assert csv
    assert not re.search(r'(^|,)"?[=+@\t]', csv, re.MULTILINE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "nan", "runs", "site"]
    assert "75.0" in page


def test_texts_of_a_data_set_and_perplexities_of_any_size_are_let_in():
    row = checked(
        GOOD | {"task": "perplexity:c4_sample", "metric": "perplexity,none", "score": 5.9e12, "low": 1, "high": 1e20}
    )
    assert row["task"] == "perplexity:c4_sample"
    with pytest.raises(Rejected, match="task"):
        checked(GOOD | {"task": "perplexity:/home/somebody/file"})


@pytest.mark.parametrize(
    ("recipe", "good"),
    [
        ("steps 3, trained_on perplexity:c4_sample+perplexity:novels", True),
        ("steps 3, trained_on gsm8k+csqa", True),
        ("steps 3, trained_on perplexity://evil", False),
        ("javascript:alert(1)", False),
        ("steps 3, https:example.org", False),
    ],
)
def test_a_recipe_may_name_corpora_and_no_other_scheme(make_row, recipe, good):
    if good:
        assert checked(make_row(recipe=recipe))["recipe"] == recipe
    else:
        with pytest.raises(Rejected, match="recipe"):
            checked(make_row(recipe=recipe))
