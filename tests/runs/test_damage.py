"""What becomes of a finished run whose files are lost, cut off or shared with another run."""

import json
import os
import shutil
import signal

import pytest
import yaml
from finished_run import read, table_only

from adaptive_bench.cli.runs import Wanted, runs_in
from adaptive_bench.cli.samples import compared, diff, documents
from adaptive_bench.cli.show import run_text as shown
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import plan, run
from adaptive_bench.store import manifest
from adaptive_bench.store.inventory import pieces
from adaptive_bench.store.records import DialEvaluationRecord, Record
from adaptive_bench.store.results import read_table
from adaptive_bench.store.runs import find_run, run_command


def untimed(rows):
    return [row | {"seconds": None, "made_with": None} for row in rows]


def rows_of(folder):
    return read_table(folder / "table.json")


def test_of_a_run_that_is_whole_nothing_is_said_and_nothing_is_written_again(finished):
    config, folder, _ = finished
    assert "Not as the run left it" not in shown(folder) and {piece.state for piece in pieces(config.out)} == {"done"}
    assert [one["state"] for one in runs_in(config.out, Wanted())] == ["done"]
    run(config, jobs=1)  # the copy lies elsewhere, which its config says from now on
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
    assert run(config, jobs=1).rows and table_only(config).rows
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()} == before


@pytest.mark.parametrize("which", ["training", "sweep"])
def test_a_record_that_is_cut_off_is_told_and_made_again(finished, which):
    config, folder, sweep = finished
    rows, record = rows_of(folder), sweep if which == "sweep" else sweep.parents[1]
    file = record / "record.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert [piece.folder for piece in pieces(config.out) if piece.state == "damaged"] == [record]
    with pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        table_only(config)
    assert run(config, jobs=1).exit_code == 0
    assert untimed(rows_of(folder)) == untimed(rows) and {piece.state for piece in pieces(config.out)} == {"done"}
    assert (record / "record.json.damaged").is_file() and "made again" in (record / "log.txt").read_text()


@pytest.mark.parametrize("lose", ["half a line is too many", "half a line is missing", "all of it is missing"])
def test_documents_that_are_half_written_or_lost_are_measured_again(finished, lose):
    config, folder, sweep = finished
    rows, texts, file = rows_of(folder), read(folder), sweep / "documents.jsonl"
    if lose == "half a line is too many":
        file.write_bytes(file.read_bytes() + b'{"doc": 0, "targ')
        assert read(folder) == texts
    elif lose == "half a line is missing":
        file.write_bytes(file.read_bytes()[:-20])
        assert "lacks 1 of its 2 measured points" in " ".join(shown(folder).split())
    else:
        file.unlink()
    assert run(config, jobs=1).exit_code == 0
    assert untimed(rows_of(folder)) == untimed(rows) and read(folder) == texts


def test_a_kill_between_the_documents_and_the_list_of_points_costs_one_point(finished, monkeypatch):
    config, folder, sweep = finished
    rows, content = rows_of(folder), (sweep / "documents.jsonl").read_bytes()
    record = DialEvaluationRecord(sweep)
    record.write("points", {saving: one for saving, one in record.read("points").items() if saving == "0"})
    write = Record.write

    def killed(self, section, values):
        if section == "points":
            os._exit(signal.SIGKILL)
        write(self, section, values)

    if not (child := os.fork()):
        monkeypatch.setattr(Record, "write", killed)
        run(config, jobs=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert record.savings() == [0.0] and (sweep / "documents.jsonl").read_bytes() == content
    assert run(config, jobs=1).exit_code == 0
    assert untimed(rows_of(folder)) == untimed(rows) and (sweep / "documents.jsonl").read_bytes() == content


def test_a_whole_record_that_is_gone_is_missed_by_name_and_made_again(finished):
    config, folder, sweep = finished
    rows = rows_of(folder)
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match="no measured point"):
        read(folder)
    assert [piece.folder for piece in pieces(config.out) if piece.state == "damaged"] == [sweep]
    assert "lacks 2 of its 2 measured points" in " ".join(shown(folder).split())
    assert run(config, jobs=1).exit_code == 0 and untimed(rows_of(folder)) == untimed(rows)


@pytest.mark.parametrize("name", ["table.json", "methods.json", "answers.json", "run.json"])
def test_a_file_of_a_run_that_is_no_json_is_written_again_by_the_command_of_the_error(finished, name):
    config, folder, _ = finished
    of_records = ("table.json", "methods.json", "answers.json", "leaderboard.md", "manifest.json")
    right = [(folder / one).read_bytes() for one in of_records]
    (folder / name).write_text('{"half')
    table_only(config)
    assert [(folder / one).read_bytes() for one in of_records] == right
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_what_one_run_alone_measured_is_said_beside_the_difference(finished, config_of, capsys):
    _, folder, sweep = finished
    other = run(config_of("dense"), jobs=1).folder
    diff(folder, other)
    assert "Only the first measured" in capsys.readouterr().out
    (sweep / "documents.jsonl").unlink()
    diff(folder, other)
    said = " ".join(capsys.readouterr().out.split())
    assert "Not finished in" in said and "lacks 2 of its 2 measured points" in said


def test_points_that_another_run_measured_are_not_shown(shared):
    config, folder, _, (texts, rows, listed) = shared
    for _ in range(2):
        known = manifest.read(folder)
        assert read(folder) == texts == documents(known, known.evaluations, 0.2)
        assert list(compared(folder, folder)) == rows
        assert table_only(config).rows and (folder / manifest.FILE).read_bytes() == listed


def test_runs_that_share_records_are_made_again_each_for_itself(shared, config_of):
    config, folder, sweep, _ = shared
    rows, other = rows_of(folder), config_of("gateskip,dense", levels=(0.0, 0.2, 0.3), train={"target": 0.3})
    others = run(other, jobs=1).rows
    (sweep / "record.json").write_text("")
    assert untimed(run(config, jobs=1).rows) == untimed(rows)
    assert DialEvaluationRecord(sweep).savings() == [0.0, 0.3]
    assert untimed(run(other, jobs=1).rows) == untimed(others)
    assert untimed(table_only(config).rows) == untimed(rows) and all(one.finished for one in plan(config).trainings)


def change_out(folder, out):
    values = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(values | {"out": str(out)}))


def test_the_command_of_a_moved_run_names_where_it_lies(finished, tmp_path):
    config, folder, _ = finished
    change_out(folder, config.out)
    assert "--out" not in run_command(folder, ())
    moved = tmp_path / "moved"
    config.out.rename(moved)
    folder = moved / "runs" / folder.name
    assert run_command(folder, ()).endswith(f"--out {moved}") and read(folder)
    (folder / "table.json").write_text("[")
    with pytest.raises(EnvironmentProblem, match=f"--out {moved} --table-only"):
        read_table(folder / "table.json")


def test_a_run_that_was_copied_alone_says_where_its_records_should_be(finished, tmp_path):
    """Its records are read where they were, as long as they are there."""
    config, folder, _ = finished
    change_out(folder, config.out)
    copied = tmp_path / "elsewhere" / "runs" / folder.name
    shutil.copytree(folder, copied)
    assert find_run(copied) == copied and read(copied) == read(folder)
    config.out.rename(tmp_path / "moved")
    with pytest.raises(EnvironmentProblem, match=f"no folder '{tmp_path / 'elsewhere' / 'records'}'.*beside `records`"):
        read(copied)
