"""Where a result is does not depend on what is here to compute others."""

import json
import shutil

import pytest

from adaptive_bench import source
from adaptive_bench.cli.samples import compared, documents
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs import plan, run
from adaptive_bench.runs import training_work as training
from adaptive_bench.runs.trained import find_checkpoint, work_of
from adaptive_bench.store import manifest


def read(folder):
    """What the methods of a run wrote near 10 %."""
    known = manifest.of_run(folder)
    return documents(known, [one for one in known.evaluations if one.split == "test"], 0.1)


def rows_of(folder):
    return json.loads((folder / "table.json").read_text())


def test_readers_need_neither_model_nor_the_code_that_measured(config_of, model_folder, tmp_path, monkeypatch):
    """With a method that starts from another one's training, two targets and a spec that is not trained."""
    model = shutil.copytree(model_folder, tmp_path / "model")
    config = config_of("dense,router_tuned_mod,gateskip,random_skip", model=str(model), levels=(0.05, 0.1))
    outcome = run(config)
    whole = plan(config)
    written = read(outcome.folder)
    shutil.rmtree(config.model)
    monkeypatch.setattr(source, "FLOORS", dict.fromkeys(source.FLOORS, 2))
    found = work_of(outcome.folder)
    assert [str(training) for training in found.trainings] == [str(training) for training in whole.trainings]
    assert [(str(sweep), sweep.folder) for sweep in found.sweeps] == [(str(one), one.folder) for one in whole.sweeps]
    assert read(outcome.folder) == written and any(one.answers for one in written)
    assert {row["changed"] for row in compared(outcome.folder, outcome.folder)} == {"none"}
    assert find_checkpoint(outcome.folder, "gateskip").is_dir()
    again = run(config, table_only=True)
    assert again.rows == outcome.rows and again.exit_code == 0


def test_a_finished_table_is_not_replaced_by_a_poorer_one(finished):
    config, folder, sweep = finished
    rows = rows_of(folder)
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        run(config, table_only=True)
    assert rows_of(folder) == rows


def test_nor_by_a_run_that_fails(finished, monkeypatch):
    config, folder, _ = finished
    listed, rows = (folder / manifest.FILE).read_bytes(), rows_of(folder)
    monkeypatch.setattr(source, "FLOORS", dict.fromkeys(source.FLOORS, 2))  # everything is to be made anew, and cannot
    monkeypatch.setattr(training, "train", lambda *_, **__: (_ for _ in ()).throw(EnvironmentProblem("not today")))
    again = run(config)
    assert again.exit_code == 1 and any("not replaced by a poorer one" in warning for warning in again.warnings)
    assert rows_of(folder) == rows and (folder / manifest.FILE).read_bytes() == listed and read(folder)


def test_nor_where_nobody_can_tell_whether_it_was_finished(finished):
    config, folder, sweep = finished
    (folder / "run.json").unlink()
    shutil.rmtree(sweep)
    with pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        run(config, table_only=True)


def test_a_refused_table_leaves_the_list_of_the_finished_one(finished, monkeypatch):
    config, folder, _ = finished
    listed = (folder / manifest.FILE).read_bytes()
    monkeypatch.setattr(source, "FLOORS", dict.fromkeys(source.FLOORS, 2))
    with pytest.raises(EnvironmentProblem, match="not replaced by a poorer one"):
        run(config, table_only=True, wait_s=0.01)
    assert (folder / manifest.FILE).read_bytes() == listed


def test_a_run_of_an_earlier_version_is_told_how_to_make_it_again(finished):
    config, folder, _ = finished
    file = folder / manifest.FILE
    file.write_text(file.read_text().replace('"schema": 3', '"schema": 2'))
    for reader in (work_of, read, lambda folder: run(config, table_only=True)):
        with pytest.raises(
            EnvironmentProblem, match=r"earlier version, .*make it again: `adaptive-bench run --config "
        ):
            reader(folder)
    assert run(config).exit_code == 0 and read(folder)
