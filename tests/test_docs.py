"""The pages of the methods are what the methods say of themselves today, and a table what its record says."""

import inspect
import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import yaml
from pydantic import Field

import adaptive_bench
from adaptive_bench import method
from adaptive_bench.docs import __main__ as main
from adaptive_bench.docs import methods as docs
from adaptive_bench.method import MethodConfig
from adaptive_bench.methods.dense import Dense

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "methods"
PAGES = docs.pages()


@pytest.mark.parametrize("file", sorted(PAGES))
def test_pages_are_up_to_date(file):
    assert (FOLDER / file).read_text(encoding="utf-8") == PAGES[file], "run: python -m adaptive_bench.docs docs"


def test_there_are_no_other_pages_and_the_index_leads_to_each():
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES), "run: python -m adaptive_bench.docs docs"
    assert all(f"]({page})" in PAGES["README.md"] for page in PAGES if page != "README.md")


class Config(MethodConfig):
    share: float = Field(0.5, gt=0, le=1, description="share of a|b (paper_x)")
    kind: Literal["one", "two"] | None = Field(None, description="one of two")
    on: bool = True


class Documented(Dense):
    """First line. Rest."""

    Config: ClassVar[type[MethodConfig]] = Config


def test_parameters_show_defaults_bounds_and_choices():
    page = docs.method_page("dense", Documented)
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")}
    assert "number, > 0, ≤ 1" in rows["`share`"]
    assert r"a&#124;b (paper\_x)" in rows["`share`"]
    assert "`one`, `two`" in rows["`kind`"]
    assert "none" in rows["`kind`"]
    assert "`true`" in rows["`on`"]
    assert "dense[share=0.5]" in page


def test_signs_of_a_docstring_mean_themselves_and_equations_stay():
    text = docs._escaped(r"a_b <= c|d, `x_y|z`, $h_l \le 1$ & more, see https://a_b.org.")
    assert text.startswith(r"a\_b &lt;= c&#124;d, `x_y|z`, $h_l \le 1$ &amp; more, see <https://a_b.org>")


def test_writing_removes_pages_of_methods_that_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(main, "pages", lambda: {"a.md": "text\n"})
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "gone.md").touch()
    main.write(tmp_path)
    assert [(path.name, path.read_text()) for path in (tmp_path / "methods").iterdir()] == [("a.md", "text\n")]


def test_the_trials_of_the_backbone_are_those_of_their_record():
    record = json.loads((ROOT / "docs/records/nano_backbone.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    shown = [row for row in record["rows"] if f"| {row['name']} |" in text]
    assert [row["name"] for row in shown] == [record["rows"][0]["name"], record["rows"][-1]["name"]]
    for row in shown:
        columns = [" / ".join(f"{one:.1f}" for one in row["largest_over_median"].values())]
        for name in ("base", "dense", "best_without_a_layer", "random_skip_trained_at_15"):
            scores = row[name]
            columns.append("n/a" if scores is None else " / ".join(f"{100 * one:.1f}" for one in scores.values()))
        assert f"| {row['name']} | {' | '.join(columns)} |" in text
    recipe = json.loads((ROOT / "tasks/nano/weights/recipe.json").read_text(encoding="utf-8"))
    assert record["rows"][-1]["divergences"] == recipe["sensitivities"]


def test_figures_of_the_protocol_are_those_of_their_records():
    page = re.sub(r"\s+", " ", (ROOT / "docs/protocol.md").read_text(encoding="utf-8"))
    record = json.loads((ROOT / "docs/records/nano_three_seeds.json").read_text(encoding="utf-8"))
    saved = [100 * one["saved_net"] for one in record["points"] if one["layers"] == one["trained_for"] == 1]
    assert "one layer of six saved {:.1f}, {:.1f} and {:.1f} % of net FLOPs".format(*saved) in page
    both = {
        row["method"]: (f"{100 * row['score']:.1f}", f"{100 * row['shuffled_score']:.1f}")
        for row in record["rows"]
        if (row["task"], row["axis"], row["level"]) == ("nano_math", "net", 0.15)
        and row["metric"] == "exact_match,strict-match"
        and row.get("shuffled_score") is not None
    }
    assert "MoD had {} % on nano_math where it saved 15 % of net FLOPs, and {} with".format(*both["mod"]) in page
    assert "went from {} to {}".format(*both["position_skip[trained=true]"]) in page
    rows = json.loads((ROOT / "docs/records/nano_calibration.json").read_text(encoding="utf-8"))["rows"]
    off = [100 * abs(row["realised"] - row["asked"]) for row in rows]
    assert f"off by {statistics.median(off):.2f} points in the median and by {max(off):.2f} at worst" in page
    assert f"{len(rows)} cells" in page


def test_what_is_cited_is_what_is_here():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in project["authors"]]
    bibtex = (ROOT / "docs/cite.md").read_text(encoding="utf-8").partition("```bibtex\n")[2].partition("```")[0]
    fields = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", bibtex, re.MULTILINE))
    assert fields["title"] == cited["title"] and fields["author"] == cited["authors"][0]["name"]
    assert (fields["version"], fields["license"]) == (cited["version"], cited["license"])


def test_the_gate_analysis_is_that_of_its_record():
    record = json.loads((ROOT / "docs/records/nano_gates.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/inspect.md").read_text(encoding="utf-8")
    marks = {True: "✓", False: "✗", None: "~"}
    one, other = (method["statements"] for method in record["methods"])
    for each in one:
        assert f"| {each['place']}: {each['paper']} | {marks[each['agrees']]} {each['ours']} |" in page
    assert f"On the nano model, {record['texts']} texts" in page
    assert sum(each["agrees"] is False for each in (*one, *other)) > 11  # "most of it differs"


def test_the_headroom_of_the_nano_model_is_that_of_its_record():
    record = json.loads((ROOT / "docs/records/nano_headroom.json").read_text(encoding="utf-8"))
    expected = []
    for task in record["tasks"]:
        if task["unit"] != "share":
            continue  # texts are asked once, so that nothing can be crossed
        found = [
            (f"{100 * one['level']:.0f} %", one["static"], one["cross_fitted"], one["headroom"])
            for one in task["levels"]
        ]
        for saved, static, oracle, over in found:
            ends = f"{100 * over['difference']:+.1f} [{100 * over['low']:+.1f}, {100 * over['high']:+.1f}]"
            expected.append(f"| {task['task']} | {saved} | {100 * static:.1f} | {100 * oracle:.1f} | {ends} |")
    text = (ROOT / "docs/headroom.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| nano_")] == expected


# The documentation site: every page is in its navigation, every link leads somewhere, and it is complete by itself.


GENERATED = {"first_steps.md"}  # from the notebook, while the site is built
FOREIGN = re.compile(
    r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//'
)


def _pages(entries):
    for entry in entries:
        found = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [found] if isinstance(found, str) else _pages(found)


@pytest.fixture
def site():
    for package in ("mkdocs", "latex2mathml"):
        pytest.importorskip(package, reason="needs the docs extra: pip install '.[docs]'")
    from adaptive_bench.docs import mkdocs_hook as site

    return site


@pytest.mark.slow
def test_every_page_is_in_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(_pages(settings["nav"])) == sorted(there | GENERATED)


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path, site):
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="needs the docs extra: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    for name, text in pages.items():
        assert not FOREIGN.search(text), f"{name} asks another server"
        assert "arithmatex" not in text and not re.search(r"<m[ion]>\\", text), (
            f"{name} has an equation nobody can read"
        )
        for source in re.findall(r'<img[^>]*\ssrc="([^":]+)"', text):
            assert (tmp_path / name).parent.joinpath(source).is_file(), f"{name} lacks the picture {source}"
    concepts, statistics = pages["concepts/index.html"], pages["statistics/index.html"]
    assert 'display="block"><mrow><mfrac>' in statistics
    assert f"adaptive-bench {adaptive_bench.__version__}" in concepts and 'href="../board/index.html"' in concepts
    assert 'href="../first_steps/"' in pages["python/index.html"] and "find_backbone" in pages["first_steps/index.html"]
    assert 'id="adaptive_bench.method.base.Method.decide"' in pages["reference/index.html"]


@pytest.mark.slow
def test_the_reference_has_every_public_name():
    listed = set(re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.MULTILINE))
    for home in (adaptive_bench, method):
        for name in home.__all__:
            thing = getattr(home, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                assert f"{thing.__module__}.{thing.__qualname__}" in listed


@pytest.mark.slow
def test_equations_become_mathml_and_the_notebook_a_page(site):
    inline, block = r'<p>if <span class="arithmatex">\(a &lt; b\)</span></p>', r"\[\frac12\]"
    html = site.rendered(f'{inline}<div class="arithmatex">{block}</div>')
    assert html.startswith("<p>if <math") and "<mo>&#x0003C;</mo>" in html
    assert 'display="block"' in html and "<mfrac>" in html and "arithmatex" not in html
    cells = [("markdown", ["# Title\n", "\n", "Text."]), ("code", ["a = 1\n", "a"])]
    text = site.page_of({"cells": [{"cell_type": kind, "source": source} for kind, source in cells]})
    assert text.startswith("# Title\n\nText.\n\n[") and text.endswith("```python\na = 1\na\n```\n")
    assert "(first_steps.ipynb)" in text
