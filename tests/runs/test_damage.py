"""What becomes of a finished run whose files are lost, cut off or shared with another run, or whose code and model are
not here any more: where a result is does not depend on what is here to compute others.
"""

import json
import shutil

import pytest
import torch
import yaml
from finished_run import change, read, scores_of, table_only, without_point
from small_runs import untimed

from adaptive_bench.cli.listing import runs_in
from adaptive_bench.cli.runs import documents
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import plan, run
from adaptive_bench.runs import training_work as training
from adaptive_bench.runs.trained import config_of, find_model, work_of
from adaptive_bench.store import keys, manifest
from adaptive_bench.store.manifest import pieces
from adaptive_bench.store.records import DialEvaluationRecord, Record
from adaptive_bench.store.runs import find_run, read_json


def rows_of(folder):
    return read_json(folder / "table.json")


def test_of_a_run_that_is_whole_nothing_is_said_and_nothing_is_written_again(finished):
    config, folder, _ = finished
    assert {piece.state for piece in pieces(config.out)} == {"done"}
    assert [one["state"] for one in runs_in(config.out)] == ["done"]
    run(config, jobs=1)  # the copy lies elsewhere, which its config says from now on
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}
    assert run(config, jobs=1).rows and table_only(config).rows
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()} == before


def test_documents_that_are_lost_are_measured_again(finished):
    config, folder, sweep = finished
    rows, texts, file = rows_of(folder), read(folder), sweep / "documents.jsonl"
    calibration = Record(sweep).read("calibration")
    file.write_bytes(file.read_bytes()[:-20])
    for lost in (False, True):
        if lost:
            file.unlink()
        assert run(config, jobs=1).exit_code == 0
        assert untimed(rows_of(folder)) == untimed(rows) and read(folder) == texts
        assert Record(sweep).read("calibration") == calibration


def test_a_whole_record_that_is_gone_is_missed_by_name_and_made_again(finished):
    config, folder, sweep = finished
    rows = rows_of(folder)
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match="no measured point"):
        read(folder)
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


def test_runs_that_share_records_are_shown_and_made_again_each_for_itself(finished, config_of):
    """Another run goes on with the sweeps, for points of its own."""
    config, folder, sweep = finished
    before = read(folder), scores_of(folder), (folder / manifest.FILE).read_bytes()
    rows, other = rows_of(folder), config_of("gateskip,dense", levels=(0.0, 0.2, 0.3), train={"target": 0.3})
    others = run(other, jobs=1)
    assert others.exit_code == 0 and "0.2" in Record(sweep).read("points")
    for _ in range(2):
        known = manifest.read(folder)
        assert (read(folder), scores_of(folder), (folder / manifest.FILE).read_bytes()) == before
        assert read(folder) == documents(known, known.evaluations, 0.2) and table_only(config).rows
    shutil.rmtree(sweep)
    assert untimed(run(config, jobs=1).rows) == untimed(rows)
    assert DialEvaluationRecord(sweep).savings() == [0.0, 0.3]
    assert untimed(run(other, jobs=1).rows) == untimed(others.rows)
    assert untimed(table_only(config).rows) == untimed(rows) and all(one.finished for one in plan(config).trainings)


def change_out(folder, out):
    values = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(values | {"out": str(out)}))


def test_the_command_of_a_moved_run_names_where_it_lies(finished, tmp_path):
    config, folder, _ = finished
    change_out(folder, config.out)
    moved = tmp_path / "moved"
    config.out.rename(moved)
    folder = moved / "runs" / folder.name
    assert read(folder) and config_of(folder).out == moved
    (folder / "table.json").write_text("[")
    with pytest.raises(EnvironmentProblem, match=f"`adaptive-bench retry {folder.parents[1]}/{folder.name}`"):
        read_json(folder / "table.json")


def test_a_run_that_was_copied_alone_says_where_its_records_should_be(finished, tmp_path):
    _, folder, _ = finished
    copied = tmp_path / "elsewhere" / "runs" / folder.name
    shutil.copytree(folder, copied)
    assert find_run(copied) == copied
    with pytest.raises(EnvironmentProblem, match=f"no folder '{tmp_path / 'elsewhere' / 'records'}'.*beside `records`"):
        read(copied)


def test_readers_need_neither_model_nor_the_code_that_measured(config_of, model_folder, tmp_path, monkeypatch):
    """With a method that starts from another one's training, two targets and a spec that is not trained."""
    model = shutil.copytree(model_folder, tmp_path / "model")
    config = config_of("dense,router_tuned_mod,gateskip,random_skip", model=str(model), levels=(0.05, 0.1))
    outcome = run(config)
    whole = plan(config)
    written = read(outcome.folder)
    shutil.rmtree(config.model)
    monkeypatch.setattr(keys, "FLOORS", dict.fromkeys(keys.FLOORS, 2))
    found = work_of(outcome.folder)
    assert [str(training) for training in found.trainings] == [str(training) for training in whole.trainings]
    assert [(str(sweep), sweep.folder) for sweep in found.sweeps] == [(str(one), one.folder) for one in whole.sweeps]
    assert read(outcome.folder) == written and any(one["answers"] for one in written)
    assert find_model(outcome.folder, "gateskip")[0].is_dir()
    again = run(config, table_only=True)
    assert again.rows == outcome.rows and again.exit_code == 0


def test_a_finished_table_is_not_replaced_by_that_of_a_run_that_fails(finished, monkeypatch):
    config, folder, _ = finished
    listed, rows = (folder / manifest.FILE).read_bytes(), rows_of(folder)
    monkeypatch.setattr(keys, "FLOORS", dict.fromkeys(keys.FLOORS, 2))  # everything is to be made anew, and cannot
    monkeypatch.setattr(training, "train", lambda *_, **__: (_ for _ in ()).throw(EnvironmentProblem("not today")))
    again = run(config)
    assert again.exit_code == 1 and any("not replaced by a poorer one" in warning for warning in again.warnings)
    assert rows_of(folder) == rows and (folder / manifest.FILE).read_bytes() == listed and read(folder)


def test_a_finished_table_and_its_list_stay_where_nobody_can_make_them_again(finished, monkeypatch):
    config, folder, sweep = finished
    listed = (folder / manifest.FILE).read_bytes()
    with monkeypatch.context() as patched, pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        patched.setattr(keys, "FLOORS", dict.fromkeys(keys.FLOORS, 2))
        run(config, table_only=True, wait_s=0.01)
    assert (folder / manifest.FILE).read_bytes() == listed
    (folder / "run.json").unlink()  # nobody can tell whether it was finished
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        table_only(config)


def test_a_run_of_an_earlier_version_is_told_how_to_make_it_again(finished):
    config, folder, _ = finished
    file = folder / manifest.FILE
    file.write_text(file.read_text().replace('"schema": 3', '"schema": 2'))
    for reader in (work_of, read, lambda folder: run(config, table_only=True)):
        with pytest.raises(EnvironmentProblem, match=r"earlier version, .*again: `adaptive-bench retry "):
            reader(folder)
    assert run(config).exit_code == 0 and read(folder)


def test_other_versions_in_one_table_and_in_what_goes_on_elsewhere_are_said(config_of):
    config = config_of("random_skip")
    first = run(config)
    (made,) = {row["made_with"] for row in first.rows}
    assert f"torch {torch.__version__}" in made and not any("same versions" in text for text in first.warnings)
    (sweep,) = plan(config).sweeps
    change(sweep.folder, "env", torch="1.0", device_name="another")
    for computes in (False, True):
        if computes:
            without_point(sweep.record, 0.3)
        outcome = run(config, table_only=not computes)
        assert any("same versions on the same device" in text for text in outcome.warnings)
        assert all("torch 1.0" in row["made_with"] and torch.__version__ in row["made_with"] for row in outcome.rows)
    assert "machine" not in sweep.record.read("env")["before"][0]
