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

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "methods"
PAGES = docs.pages()
PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")


def _record(name):
    return json.loads((ROOT / f"docs/records/{name}.json").read_text(encoding="utf-8"))


def _rows(after, begins="| "):
    """Cells of the lines of tables between some words of the protocol and the next heading."""
    part = PROTOCOL.partition(after)[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith(begins)]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def _only(rows, **wanted):
    """The one row with these values."""
    (row,) = (one for one in rows if all(one[key] == value for key, value in wanted.items()))
    return row


def _shown(value, task, sign=""):
    """A score as tables have it: a share in percent, other units as they are."""
    return f"{value:{sign}.3f}" if task in ("nano_text", "perplexity:c4_sample") else f"{100 * value:{sign}.1f}"


def _with_interval(row, task, names=("score", "low", "high"), sign=""):
    value, low, high = (_shown(row[name], task, sign) for name in names)
    return f"{value} [{low}, {high}]"


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
    record = _record("nano_intact_start")
    for name, points in (one for side in ("before", "after") for one in record[side].items()):
        found, is_text = [_score_at(points, level) for level in (0.0, 0.05, 0.1, 0.15, 0.2)], name.endswith("nano_text")
        assert " / ".join(f"{one:.2f}" if is_text else f"{100 * one:.1f}" for one in found) in PROTOCOL, name


def _score_at(points, level):
    ordered = sorted(points, key=lambda point: point["net"])
    below, above = next(
        (one, other) for one, other in pairwise(ordered) if one["net"] - 1e-9 <= level <= other["net"] + 1e-9
    )
    share = 0.0 if above["net"] == below["net"] else (level - below["net"]) / (above["net"] - below["net"])
    return below["score"] + share * (above["score"] - below["score"])


def test_the_trials_of_the_backbone_are_those_of_their_record():
    record = _record("nano_backbone")
    for row in record["rows"]:
        columns = [" / ".join(f"{one:.1f}" for one in row["largest_over_median"].values())]
        for name in ("base", "dense", "best_without_a_layer", "random_skip_trained_at_15"):
            scores = row[name]
            columns.append("n/a" if scores is None else " / ".join(f"{100 * one:.1f}" for one in scores.values()))
        assert f"| {row['name']} | {' | '.join(columns)} |" in PROTOCOL
    recipe = json.loads((ROOT / "tasks/nano/weights/recipe.json").read_text(encoding="utf-8"))
    assert record["rows"][-1]["divergences"] == recipe["sensitivities"]


def test_the_three_seeds_are_those_of_their_record():
    record = _record("nano_three_seeds")
    metrics = {"nano_text": "bits_per_byte,none"} | dict.fromkeys(("nano_math", "nano_qa"), "exact_match,strict-match")
    lines = _rows("## Three seeds under all rules", "| `")[:15]
    assert len(lines) == 15
    for name, *cells in lines:
        method = name.strip("`")
        level = 0 if method in ("dense", "base") else 0.15
        for place, task in enumerate(("nano_math", "nano_qa", "nano_text")):
            row = _only(record["rows"], method=method, task=task, metric=metrics[task], axis="net", level=level)
            expected = [_with_interval(row, task), "", ""]
            if "decisions_worth" in row:
                worth = _with_interval(row, task, ("decisions_worth", "decisions_low", "decisions_high"), "+")
                apart = "≠" * (abs(row.get("shuffled_apart", math.inf)) > TOLERANCE)
                expected[1:] = _shown(row["shuffled_score"], task), worth + apart
            assert cells[3 * place : 3 * place + 3] == expected, (method, task)


def test_the_cuts_of_static_depth_are_those_of_their_record():
    points = _record("nano_three_seeds")["points"]
    for layers, *cells in _rows("| layers left out |")[:2]:
        for place, task in enumerate(("nano_math", "nano_qa", "nano_text")):
            point = _only(points, task=task, layers=int(layers))
            assert point["trained_for"] == point["layers"] and len(point["scores"]) == 3
            expected = [_shown(statistics.fmean(point["scores"]), task), f"{100 * point['saved_net']:.1f} %"]
            assert cells[2 * place : 2 * place + 2] == expected


def test_real_text_at_gentler_rates_is_that_of_its_record():
    rows, tables = _record("real_text_gentle")["rows"], _rows("## Real text at gentler rates")
    assert len(tables) == 1 + 5 + 1 + 6
    for name, *cells in (*tables[1:6], *tables[7:]):
        spec = name.partition(" (")[0].strip("`")
        wanted, levels = {"method": spec}, (0.1, 0.15, 0.1)
        if spec == "none":
            wanted, levels = {"method": "base"}, (0.0, 0.0)
        elif spec[0] == "0":
            wanted, levels = {"method": "dense", "rate": float(spec)}, (0.0, 0.0)
        tasks = [*["perplexity:c4_sample"] * (len(levels) - 1), "lambada"]
        places = zip(tasks, levels, strict=True)
        assert cells == [_with_interval(_only(rows, **wanted, task=task, level=level), task) for task, level in places]


def test_the_example_of_a_control_where_it_was_measured_is_that_of_its_board():
    page = PROTOCOL.partition("**A control is compared where")[2]
    said = re.sub(r"\s+", " ", page.partition("\n\n")[0])
    found = (ROOT / "docs/findings_real_text.md").read_text(encoding="utf-8")
    assert "saves 13.2 % on the web pages" in said and "has 2.288 bits per byte, and every method compared is" in said
    (own,) = (line for line in found.splitlines() if "scores 2.288 at a saving of 13.2 %" in line)
    assert "rule=angular" in own and "Ahead of it: none;" in own and "not separated from it: none;" in own
    for method, score in (("static_depth[rule=angular,trained=true]", 2.364), ("mod", 2.325), ("layerskip", 2.355)):
        assert str(score) in said and re.search(rf"\| `{re.escape(method)}` \| {score}\D", found)


def test_what_one_rule_changed_is_in_its_record():
    rules = {"a point within 2 points of saving": "points_of_the_grid"}
    rules["targets of 10 and 20 %, not 20 % alone"] = "one_target"
    rows, lines = _record("nano_rules")["rows"], _rows("## What one rule changed in it")[1:]
    assert len(lines) == 16
    for rule, level, spec, *cells in lines:
        method, task = spec.lstrip("`").split("`, ")
        row = _only(rows, method=method, task=task, level=float(level.strip(" %")) / 100)
        assert cells == [_with_interval(row[side], task) for side in (rules[rule], "all_rules")]


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
    record = _record("nano_gates")
    page = (ROOT / "docs/inspect.md").read_text(encoding="utf-8")
    marks = {True: "✓", False: "✗", None: "~"}
    one, other = (method["statements"] for method in record["methods"])
    for first, second in zip(one, other, strict=True):
        ours = " | ".join(f"{marks[each['agrees']]} {each['ours']}" for each in (first, second))
        assert f"| {first['place']}: {first['paper']} | {ours} |" in page
    assert f"On the nano model, {record['texts']} texts" in page
    assert sum(each["agrees"] is False for each in (*one, *other)) > 11  # "most of it is otherwise"
