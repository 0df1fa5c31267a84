"""Entries: written, read back with the numbers of their run, and refused where they do not parse."""

import json
import re
import shutil

import pyarrow
import pytest
import yaml
from pyarrow import parquet
from small_runs import run_config

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.leaderboard import entry as entries
from adaptive_bench.leaderboard.boards import Source, read_board
from adaptive_bench.leaderboard.entry import read_entry
from adaptive_bench.leaderboard.page.method_pages import samples_of
from adaptive_bench.leaderboard.provenance import runs_of
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run

ABOUT = {"authors": ["A. Name"], "licence": "CC-BY-4.0"}


def with_content(name, change):
    """Another content of a file of an entry; of a Parquet file `change` is given the rows."""

    def make(folder):
        if not name.endswith(".parquet"):
            (folder / name).write_text(change)
            return
        table = parquet.read_table(folder / name)
        rows = table.to_pylist()
        rows = change(rows) or rows
        schema = [(one.name, one.type) for one in table.schema if one.name in rows[0]]
        schema = [(key, pyarrow.string() if isinstance(rows[0][key], str) else kind) for key, kind in schema]
        parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(schema)), folder / name)

    return make


def test_an_entry_comes_to_the_table_of_its_run_and_says_nothing_of_the_machine(small_run, small_entry):
    known = read_entry(small_entry)
    assert list(known.rows) == json.loads((small_run / "table.json").read_text())
    assert json.loads(json.dumps(known.answers)) == json.loads((small_run / "answers.json").read_text())
    said = json.loads((small_run / "run.json").read_text())["warnings"]
    assert set(known.warnings) <= set(said)
    of_entry, of_board = (read_board([folder / "table.json"]).lines for folder in (small_entry, small_run))
    own = ("evidence", "checked", "external")
    assert [{**line, **dict.fromkeys(own)} for line in of_entry] == [
        {**line, **dict.fromkeys(own)} for line in of_board
    ]
    assert {line["evidence"] for line in of_entry} == {"self-reported"}
    for path in small_entry.iterdir():
        assert str(small_run.parents[2]).encode() not in path.read_bytes()


def shown(source):
    """Of each point what a page takes from it."""
    samples = samples_of([source])
    points = [(task, spec, one) for task in samples for spec, some in samples[task].items() for one in some]
    shares = [(list(one.attention_executed), list(one.mlp_executed)) for *_, one in points]
    return [(task, spec, one.savings["net"], list(one.texts[:2])) for task, spec, one in points], shares


def test_the_page_of_an_entry_shows_what_that_of_its_run_does(small_run, small_entry):
    (of_run,), (of_entry,) = (
        runs_of(board.folders, board.entries)
        for board in (read_board([folder / "table.json"]) for folder in (small_run, small_entry))
    )
    assert of_entry["facts"]["authors"] == "A. Name" and of_entry["facts"]["status"] == "self-reported"
    assert of_entry["environments"] == of_run["environments"] != []
    assert shown(Source(small_entry, read_entry(small_entry))) == shown(Source(small_run)) != ([], [])


def test_sha256sum_reads_the_sums(small_entry):
    lines = (small_entry / "SHA256SUMS").read_text().splitlines()
    names = [line.partition("  ")[2] for line in lines]
    assert names == sorted({path.name for path in small_entry.iterdir()} - {"SHA256SUMS", "about.yaml"})
    assert all(re.fullmatch(r"[0-9a-f]{64}  \S+", line) for line in lines)


def test_a_maintainer_says_that_it_was_reproduced(small_entry, tmp_path):
    folder = shutil.copytree(small_entry, tmp_path / "entry")
    about = yaml.safe_load((folder / "about.yaml").read_text())
    (folder / "about.yaml").write_text(yaml.safe_dump(about | {"status": "reproduced"}))
    board = read_board([folder / "table.json"])
    assert not board.problems and {row.evidence for row in board.rows} == {"reproduced"}


def first(**values):
    """Another value in the first row; `...` for none."""

    def change(rows):
        rows[0].update(values)
        for name in [name for name, value in values.items() if value is ...]:
            for row in rows:
                del row[name]

    return change


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        ("points.parquet", first(dial=None), r"points\.parquet is .*'dial' with null values"),
        ("points.parquet", first(dial=float("inf")), r"points\.parquet is .*dial is a finite number"),
        ("points.parquet", first(levels=[float("inf")]), r".*points\.parquet: levels, scores and shares"),
        ("points.parquet", first(method="../x"), r"A method spec has the form"),
        ("points.parquet", first(dial=...), r"points\.parquet is a Parquet file with the columns"),
        ("documents.parquet", lambda rows: rows[5:], r".*documents.parquet: there are none of point [01]"),
        ("documents.parquet", lambda rows: [*rows, rows[0]], r".*documents\.parquet: the documents of a point"),
        ("texts.parquet", first(point=10**6), r".*texts\.parquet: there is no point 1000000"),
        ("config.yaml", "- a", r"config\.yaml"),
        ("about.yaml", "authors: [A]\nlicence: MIT\nonload: x\n", r"about\.yaml: onload"),
        ("headroom.json", '{"tasks": [3]}', r"headroom\.json is not what"),
    ],
)
def test_an_entry_that_does_not_parse_is_refused_whole_and_the_reason_is_told(changed, small_run, file, change, why):
    folder = changed(with_content(file, change))
    board = read_board([folder / "table.json", small_run / "table.json"])
    assert len(board.folders) == 1 and len(board.refused) == 1, "the board goes on"
    assert re.match(rf"changed is left out: .*({why})", board.refused[0]), board.refused[0]
    with pytest.raises(EnvironmentProblem, match=why):
        entries.open_entry(folder)


def test_files_that_are_not_what_the_sums_say_are_refused(small_entry, tmp_path, monkeypatch):
    folder = shutil.copytree(small_entry, tmp_path / "entry")
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "\n")
    assert "config.yaml has another digest" in read_board([folder / "table.json"]).refused[0]
    (folder / "config.yaml").unlink()
    assert "config.yaml is missing" in read_board([folder / "table.json"]).refused[0]
    (folder / "config.yaml").symlink_to("/etc/passwd")
    assert "config.yaml is not a file" in read_board([folder / "table.json"]).refused[0]
    (folder / "config.yaml").unlink()
    shutil.copy(small_entry / "config.yaml", folder)
    (folder / "run.sh").write_text("")
    assert "run.sh is not in it" in read_board([folder / "table.json"]).refused[0]
    monkeypatch.setattr(entries, "LARGEST_BYTES", 1000)
    assert "an entry has at most" in read_board([small_entry / "table.json"]).refused[0]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "authors"),
        ({"authors": ["A"]}, "licence"),
        (ABOUT | {"authors": "A. Name"}, "authors"),
        (ABOUT | {"paper": "http://example.org"}, "paper"),
        (ABOUT | {"phone": "1"}, "phone"),
    ],
)
def test_who_made_an_entry_is_asked_for(small_run, tmp_path, about, why):
    with pytest.raises(UsageError, match=rf"about\.yaml: {why}.*--about FILE"):
        submit(small_run, tmp_path / "entries", about=about)
    assert not (tmp_path / "entries").exists()


def test_an_entry_is_of_a_run_that_is_done_and_is_never_overwritten(small_run, small_entry, tmp_path):
    with pytest.raises(UsageError, match="never changed"):
        submit(small_run, small_entry.parent, about=ABOUT)
    with pytest.raises(UsageError, match="is an entry of a board"):
        submit(small_entry, tmp_path / "entries", about=ABOUT)
    with pytest.raises(UsageError, match="A run is a folder with"):
        submit(tmp_path, tmp_path / "entries", about=ABOUT)
    home = shutil.copytree(small_run.parents[1], tmp_path / "out")
    run = home / "runs" / small_run.name
    (run / "run.json").unlink()
    with pytest.raises(EnvironmentProblem, match=r"did not\. Give its command again"):
        submit(run, tmp_path / "entries", about=ABOUT)
    assert not (tmp_path / "entries").exists()


def test_headroom_and_steps_go_along(small_run, tmp_path):
    home = shutil.copytree(small_run.parents[1], tmp_path / "out")
    run = home / "runs" / small_run.name
    (run / "headroom.json").write_text('{"kind": "headroom", "tasks": [], "model": "/home/secret"}')
    folder = submit(run, tmp_path / "entries", about=ABOUT)
    assert "secret" not in (folder / "headroom.json").read_text()
    (run / "headroom.json").write_text("{}")
    with pytest.raises(EnvironmentProblem, match=r"headroom\.json is not what"):
        submit(run, tmp_path / "others", about=ABOUT)


@pytest.fixture(scope="module")
def of_seeds(small_run, model_folder, tmp_path_factory):
    """A run of the second seed of `small_run`, whose records it takes, and an entry of the first."""
    shared = (model_folder, small_run.parents[1], ("dense", "random_skip", "gateskip"))
    first, second = (run(run_config(*shared, seeds=(one,), shuffled=True)).folder for one in (1, 2))
    return second, submit(first, tmp_path_factory.mktemp("seeds"), about=ABOUT)


def test_an_entry_of_one_seed_and_a_run_of_another_make_the_entry_of_both(of_seeds, small_run, tmp_path):
    second, entry = of_seeds
    grown = read_entry(submit(second, tmp_path, about=ABOUT | {"authors": ["B", "A. Name"]}, earlier=entry))
    assert grown.config["seeds"] == [1, 2] and len(grown.about.versions) == 1
    assert grown.about.authors == ["A. Name", "B"]
    assert list(grown.rows) == json.loads((small_run / "table.json").read_text())
    sweeps = json.loads((small_run / "answers.json").read_text())["sweeps"]
    assert json.loads(json.dumps(grown.answers))["sweeps"] == sorted(sweeps, key=lambda one: one["seed"])


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("config.yaml", "- 1", "- 2", "has seed 2 of this run"),
        ("config.yaml", "clip_norm: 1.0", "clip_norm: 2.0", "this run differ in train"),
        ("methods.json", '"code": "', '"code": "0', "this run differ in the code of dense"),
        ("about.yaml", "CC-BY-4.0", "MIT", "this run differ in licence"),
    ],
)
def test_an_entry_takes_in_only_other_seeds_of_the_same_comparison(of_seeds, changed, tmp_path, name, old, new, why):
    second, entry = of_seeds
    text = (entry / name).read_text()
    assert old in text
    earlier = changed(with_content(name, text.replace(old, new)), entry)
    with pytest.raises(UsageError, match=why):
        submit(second, tmp_path, about=ABOUT, earlier=earlier)
    assert [one.name for one in tmp_path.iterdir()] == ["changed"]
