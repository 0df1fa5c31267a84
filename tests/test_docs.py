"""The pages of the methods are what the methods say of themselves today, and a table what its record says."""

import json
import math
import re
import statistics
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import yaml
from pydantic import Field

from adaptive_bench.docs import __main__ as main
from adaptive_bench.docs import methods as docs
from adaptive_bench.method import MethodConfig
from adaptive_bench.methods.dense import Dense
from adaptive_bench.tables.shuffled import TOLERANCE

FOLDER = Path(__file__).parent.parent / "docs" / "methods"
PAGES = docs.pages()


@pytest.mark.parametrize("file", sorted(PAGES))
def test_pages_are_up_to_date(file):
    assert (FOLDER / file).read_text(encoding="utf-8") == PAGES[file], "run: python -m adaptive_bench.docs docs"


def test_there_are_no_other_pages():
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES), "run: python -m adaptive_bench.docs docs"


def test_links_of_the_index_lead_somewhere():
    for page in PAGES:
        assert f"]({page})" in PAGES["README.md"] or page == "README.md"


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
    monkeypatch.setattr(main, "figures", lambda records: {})
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "gone.md").touch()
    main.write(tmp_path)
    assert [(path.name, path.read_text()) for path in (tmp_path / "methods").iterdir()] == [("a.md", "text\n")]


def test_the_rows_measured_again_are_those_of_their_record():
    """Read off like the board: the measured points on both sides of a saving, mixed."""
    record = json.loads((FOLDER.parents[1] / "docs/records/nano_intact_start.json").read_text(encoding="utf-8"))
    text = (FOLDER.parents[1] / "docs/protocol.md").read_text(encoding="utf-8")
    for side in ("before", "after"):
        for name, points in record[side].items():
            found = [_score_at(points, level) for level in (0.0, 0.05, 0.1, 0.15, 0.2)]
            is_text = name.endswith("nano_text")
            shown = " / ".join(f"{score:.2f}" if is_text else f"{100 * score:.1f}" for score in found)
            assert shown in text, (side, name)


def test_the_trials_of_the_backbone_are_those_of_their_record():
    record = json.loads((FOLDER.parents[1] / "docs/records/nano_backbone.json").read_text(encoding="utf-8"))
    text = (FOLDER.parents[1] / "docs/protocol.md").read_text(encoding="utf-8")
    for row in record["rows"]:
        columns = [" / ".join(f"{one:.1f}" for one in row["largest_over_median"].values())]
        for name in ("base", "dense", "best_without_a_layer", "random_skip_trained_at_15"):
            scores = row[name]
            columns.append("n/a" if scores is None else " / ".join(f"{100 * one:.1f}" for one in scores.values()))
        assert f"| {row['name']} | {' | '.join(columns)} |" in text
    recipe = json.loads((FOLDER.parents[1] / "tasks/nano/weights/recipe.json").read_text(encoding="utf-8"))
    assert record["rows"][-1]["divergences"] == recipe["sensitivities"]


def _score_at(points, level):
    ordered = sorted(points, key=lambda point: point["net"])
    below, above = next(
        (one, other) for one, other in pairwise(ordered) if one["net"] - 1e-9 <= level <= other["net"] + 1e-9
    )
    share = 0.0 if above["net"] == below["net"] else (level - below["net"]) / (above["net"] - below["net"])
    return below["score"] + share * (above["score"] - below["score"])


def test_the_three_seeds_are_those_of_their_record():
    root = FOLDER.parents[1]
    record = json.loads((root / "docs/records/nano_three_seeds.json").read_text(encoding="utf-8"))
    page = (root / "docs/protocol.md").read_text(encoding="utf-8").partition("## Three seeds under all rules")[2]
    metrics = ("exact_match,strict-match", "exact_match,strict-match", "bits_per_byte,none")
    lines = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `")][:15]
    assert len(lines) == 15
    for name, *cells in lines:
        method = name.strip(" `")
        for place, (task, metric) in enumerate(zip(("nano_math", "nano_qa", "nano_text"), metrics, strict=True)):
            (row,) = (
                row
                for row in record["rows"]
                if (row["method"], row["task"], row["metric"], row["axis"]) == (method, task, metric, "net")
                and row["level"] == (0 if method in ("dense", "base") else 0.15)
            )
            shown = (lambda value: f"{value:.3f}") if task == "nano_text" else (lambda value: f"{100 * value:.1f}")
            signed = (lambda value: f"{value:+.3f}") if task == "nano_text" else (lambda value: f"{100 * value:+.1f}")
            score, shuffled, worth = (cell.strip(" ≠") for cell in cells[3 * place : 3 * place + 3])
            apart = "decisions_worth" in row and abs(row.get("shuffled_apart", math.inf)) > TOLERANCE
            assert ("≠" in cells[3 * place + 2]) == apart
            assert score == f"{shown(row['score'])} [{shown(row['low'])}, {shown(row['high'])}]"
            if "decisions_worth" in row:
                assert shuffled == shown(row["shuffled_score"])
                bounds = (signed(row["decisions_low"]), signed(row["decisions_high"]))
                assert worth == f"{signed(row['decisions_worth'])} [{', '.join(bounds)}]"
            else:
                assert shuffled == worth == ""


def test_the_cuts_of_static_depth_are_those_of_their_record():
    root = FOLDER.parents[1]
    points = json.loads((root / "docs/records/nano_three_seeds.json").read_text(encoding="utf-8"))["points"]
    page = (root / "docs/protocol.md").read_text(encoding="utf-8").partition("| layers left out |")[2]
    for line in page.splitlines()[2:4]:
        layers, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        for task, score, saving in zip(("nano_math", "nano_qa", "nano_text"), cells[::2], cells[1::2], strict=True):
            (point,) = (one for one in points if one["task"] == task and str(one["layers"]) == layers)
            mean = statistics.fmean(point["scores"])
            assert point["trained_for"] == point["layers"] and len(point["scores"]) == 3
            assert score == (f"{mean:.3f}" if task == "nano_text" else f"{100 * mean:.1f}")
            assert saving == f"{100 * point['saved_net']:.1f} %"


def test_real_text_at_gentler_rates_is_that_of_its_record():
    root = FOLDER.parents[1]
    rows = json.loads((root / "docs/records/real_text_gentle.json").read_text(encoding="utf-8"))["rows"]
    page = (root / "docs/protocol.md").read_text(encoding="utf-8").partition("## Real text at gentler rates")[2]
    tables = [line.split("|")[1:-1] for line in page.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert len(tables) == 1 + 5 + 1 + 6
    for name, *cells in (*tables[1:6], *tables[7:]):
        spec = name.strip().partition(" (")[0].strip("`")
        alone = spec == "none" or spec[0] == "0"
        method = {"none": "base"}.get(spec, "dense") if alone else spec
        places = (("perplexity:c4_sample", 0.0), ("lambada", 0.0)) if alone else ()
        places = places or (("perplexity:c4_sample", 0.1), ("perplexity:c4_sample", 0.15), ("lambada", 0.1))
        for (task, level), cell in zip(places, cells, strict=True):
            (row,) = (
                row
                for row in rows
                if (row["method"], row["task"], row["level"]) == (method, task, level)
                and (not alone or method == "base" or row["rate"] == float(spec))
            )
            shown = (lambda value: f"{100 * value:.1f}") if task == "lambada" else (lambda value: f"{value:.3f}")
            assert cell.strip() == f"{shown(row['score'])} [{shown(row['low'])}, {shown(row['high'])}]"


def test_the_example_of_a_control_where_it_was_measured_is_that_of_its_board():
    root = FOLDER.parents[1]
    page = (root / "docs/protocol.md").read_text(encoding="utf-8").partition("**A control is compared where")[2]
    said = re.sub(r"\s+", " ", page.partition("\n\n")[0])
    found = (root / "docs/findings_real_text.md").read_text(encoding="utf-8")
    assert "saves 13.2 % on the web pages" in said and "has 2.288 bits per byte, and every method compared is" in said
    (own,) = (line for line in found.splitlines() if "scores 2.288 at a saving of 13.2 %" in line)
    assert "rule=angular" in own and "Ahead of it: none;" in own and "not separated from it: none;" in own
    for method, score in (("static_depth[rule=angular,trained=true]", 2.364), ("mod", 2.325), ("layerskip", 2.355)):
        assert str(score) in said and re.search(rf"\| `{re.escape(method)}` \| {score}\D", found)


def test_what_one_rule_changed_is_in_its_record():
    root = FOLDER.parents[1]
    record = json.loads((root / "docs/records/nano_rules.json").read_text(encoding="utf-8"))
    page = (root / "docs/protocol.md").read_text(encoding="utf-8").partition("## What one rule changed in it")[2]
    rules = {
        "a point within 2 points of saving": "points_of_the_grid",
        "targets of 10 and 20 %, not 20 % alone": "one_target",
    }
    lines = [line.split("|")[1:-1] for line in page.partition("\n## ")[0].splitlines() if "`, nano" in line]
    assert len(lines) == 16
    for rule, level, spec, *cells in ([cell.strip() for cell in line] for line in lines):
        method, task = spec.lstrip("`").split("`, ")
        (row,) = (
            row
            for row in record["rows"]
            if (row["method"], row["task"], row["level"]) == (method, task, float(level.strip(" %")) / 100)
        )
        for shown, side in zip(cells, (row[rules[rule]], row["all_rules"]), strict=True):
            score, low, high = (f"{100 * side[name]:.1f}" for name in ("score", "low", "high"))
            assert shown == f"{score} [{low}, {high}]"


def test_what_is_cited_is_what_is_here():
    root = FOLDER.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in project["authors"]]
    bibtex = (root / "docs/cite.md").read_text(encoding="utf-8").partition("```bibtex\n")[2].partition("```")[0]
    fields = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", bibtex, re.MULTILINE))
    assert fields["title"] == cited["title"] and fields["author"] == cited["authors"][0]["name"]
    assert (fields["version"], fields["license"]) == (cited["version"], cited["license"])


def test_the_gate_analysis_is_that_of_its_record():
    record = json.loads((FOLDER.parents[1] / "docs/records/nano_gates.json").read_text(encoding="utf-8"))
    page = (FOLDER.parents[1] / "docs/inspect.md").read_text(encoding="utf-8")
    marks = {True: "✓", False: "✗", None: "~"}
    one, other = (method["statements"] for method in record["methods"])
    for first, second in zip(one, other, strict=True):
        ours = " | ".join(f"{marks[each['agrees']]} {each['ours']}" for each in (first, second))
        assert f"| {first['place']}: {first['paper']} | {ours} |" in page
    assert f"On the nano model, {record['texts']} texts" in page
    assert sum(each["agrees"] is False for each in (*one, *other)) > 11  # "most of it is otherwise"
