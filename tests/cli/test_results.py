"""The commands that look at what a run has left: status, show, export, retry."""

import json
import shutil

import pandas
import pytest

from adaptive_bench import load_results
from adaptive_bench.config import load_config
from adaptive_bench.errors import UsageError
from adaptive_bench.runs import run
from adaptive_bench.store.records import Record
from adaptive_bench.store.runs import write_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two methods, and another one with other seeds, in one folder."""
    out = tmp_path_factory.mktemp("results") / "out"
    base = {"methods": "dense,gateskip", "tasks": "nano_qa_ll", "out": out, "match_on": "tokens", "device": "cpu"}
    return [run(load_config("smoke", base | more), jobs=1) for more in ({}, {"train": {"steps": 1, "warmup_steps": 0}})]


@pytest.fixture
def folders(finished, tmp_path):
    """A copy of both runs that a test may damage."""
    out = finished[0].folder.parent.parent
    shutil.copytree(out, tmp_path / "out")
    return [tmp_path / "out" / one.folder.relative_to(out) for one in finished]


def test_status_lists_what_is_not_done(command, folders):
    assert "8 done" in command("status --out out").stdout
    records = sorted((folders[0].parent.parent / "records").glob("*"))
    one, other, third = (next((record / "eval").glob("*")) for record in records[:3])
    about = Record(one).read("status")
    for killed in (one, records[0]):  # the training was done before its process was killed
        Record(killed).write("status", about | {"state": "running"})
    Record(other).write("status", about | {"state": "failed", "reason": "the router is on fire"})
    (third / "record.json").write_text('{"dial": {"max')
    said = command("status --out out").stdout
    assert "1 stopped, 1 failed, 1 damaged, 5 done" in said
    assert "on fire" in said and "must be readable" in said
    listed = json.loads(command("status --out out --json").stdout)
    assert len(listed) == 8 and {"stopped", "failed", "damaged", "done"} == {one["state"] for one in listed}


def test_show_tells_where_numbers_come_from(command, folders):
    run_text = command("show", str(folders[0])).stdout
    assert "gateskip" in run_text and "torch" in run_text and "adaptive-bench retry" in run_text
    assert command("show nowhere").exit_code == 2


def test_an_export_is_what_python_loads_and_has_the_ending_of_its_format(command, folders, tmp_path):
    for form, read in (("csv", pandas.read_csv), ("parquet", pandas.read_parquet), ("json", pandas.read_json)):
        assert command("export", str(folders[0]), "-o", f"rows.{form}").exit_code == 0
        written = read(tmp_path / f"rows.{form}")
        assert len(written) == len(load_results(folders[0])) > 0
        assert {"run", "method", "level", "score"} <= set(written)
    assert command("export", str(folders[0])).stdout == (tmp_path / "rows.csv").read_text()
    assert load_results(out="out")["run"].nunique() == 2
    assert load_results("last", out="out")["run"].nunique() == 1
    with pytest.raises(UsageError, match="there is neither"):
        load_results(out="nowhere")
    result = command("export", folders[0], "-o", "rows.csv.gz")
    assert result.exit_code == 2 and "got 'rows.csv.gz'" in result.said and not (tmp_path / "rows.csv.gz").exists()


def test_a_run_in_which_everything_failed_says_so_where_its_rows_are_read(command, folders):
    (folders[0] / "table.json").write_text("[]")
    about = json.loads((folders[0] / "run.json").read_bytes())
    write_run(folders[0], about | {"failures": ["train dense, seed 1: Memory ran out."]})
    with pytest.warns(UserWarning, match=r"has no results: 1 piece.* with train dense, seed 1: Memory ran out\. `adap"):
        assert load_results(folders[0]).empty
    result = command("export", str(folders[0]), "-o", "rows.csv")
    assert result.exit_code == 0 and "retry" in result.stderr and "Memory ran out" in result.stderr


def test_retry_makes_again_what_is_gone(command, folders):
    used = json.loads((folders[0] / "run.json").read_text())["records"]
    (file, *_) = sorted((folders[0].parent.parent / "records" / used[0]).glob("eval/*/record.json"))
    file.write_text(file.read_text()[:-40])
    result = command("retry", str(folders[0]))
    assert result.exit_code == 1 and f"remove the folder {str(file.parent)!r}" in result.said
    shutil.rmtree(file.parent)
    assert command("retry", str(folders[0])).exit_code == 0
    assert Record(file.parent).read("points")["0"]["docs"] == 4

    def written():
        files = (file for file in folders[0].parent.rglob("*") if file.is_file())
        return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}

    before = written()
    assert command("retry", str(folders[0])).exit_code == 0 and folders[0] / "command.json" in before
    assert written() == before  # of what is done nothing is written again


def test_a_run_is_read_once_and_an_entry_is_none(command, folders):
    assert command("export", folders[0], folders[1], folders[0]).stdout == command("export", *folders[:2]).stdout
    about = ("--authors", "A. Name", "--licence", "CC0-1.0")
    said = command("leaderboard submit", folders[0], "-o", "out", *about)
    assert said.exit_code == 2 and "-o is a folder of entries" in said.stderr
    assert command("leaderboard submit", folders[0], "-o", "entries", *about).exit_code == 0
    entry = f"entries/{folders[0].name}"
    with pytest.raises(UsageError, match=f"verify {entry}"):
        load_results(entry)
    assert command("leaderboard build", entry, "-o", "site").exit_code == 0
