"""Files of a record: read once, folded into one where there are many."""

import pytest

from adaptive_bench.runs import plan, run
from adaptive_bench.runs.outcome.table import outcome_of
from adaptive_bench.runs.work import recording
from adaptive_bench.store import files
from adaptive_bench.store.overview import pieces
from adaptive_bench.store.records import DialEvaluationRecord


@pytest.fixture
def opened(monkeypatch):
    """Paths of the files of records that were opened."""
    found = []

    def content(folder, name, real=files._content):
        found.append(f"{folder}/{name}")
        return real(folder, name)

    monkeypatch.setattr(files, "_content", content)
    return found


def folders(config):
    whole = plan(config)
    return [one.folder for one in (*whole.trainings, *whole.sweeps)]


def test_a_folded_record_says_the_same(config_of):
    config = config_of(("gateskip", "dense"))
    rows = run(config, jobs=1).rows
    before = list(pieces(config.out))
    for folder in folders(config):
        files.fold(folder)
        left = {file.name for file in folder.iterdir() if file.suffix in (".json", ".jsonl")}
        assert left <= {files.FOLDED, "train.jsonl", "timing.json"}
    assert list(pieces(config.out)) == before
    assert run(config, jobs=1).rows == rows
    whole = plan(config)
    assert all(training.finished for training in whole.trainings) and all(sweep.is_complete for sweep in whole.sweeps)
    assert whole.sweeps[0].record.samples(0.0)[0].prompt


def test_work_goes_on_in_a_folded_record(config_of):
    run(config_of("gateskip"), jobs=1)
    record = plan(config_of("gateskip")).sweeps[0].record
    record.write("env.json", record.read("env.json") | {"torch": "0.1"})
    for folder in folders(config_of("gateskip")):
        files.fold(folder)
    wider = config_of("gateskip", evaluation={"grid": (0.0, 0.2, 0.3)})
    assert not run(wider, jobs=1).failures
    record = plan(wider).sweeps[0].record
    assert record.read("env.json")["before"][0]["torch"] == "0.1"
    assert {0.0, 0.2, 0.3} <= set(record.savings())
    assert {dial["saving"] for dial in record.read("calibration.json")["dials"]} >= {0.2, 0.3}


def test_a_run_of_many_trainings_folds_them_as_they_end(config_of, monkeypatch):
    monkeypatch.setattr(recording, "_MANY", 1)
    config = config_of("gateskip")
    run(config, jobs=1)
    assert all((folder / files.FOLDED).is_file() for folder in folders(config))


def test_a_folded_record_that_changed_is_made_again(config_of):
    config = config_of("gateskip")
    rows = run(config, jobs=1).rows
    sweep = plan(config).sweeps[0].folder
    files.fold(sweep)
    file = sweep / files.FOLDED
    file.write_text(file.read_text().replace("0.", "0.1", 1))
    assert [piece.state for piece in pieces(config.out)] == ["done", "damaged"]
    assert DialEvaluationRecord(sweep).savings() == []
    again = run(config, jobs=1).rows
    timed = {"seconds": None, "made_with": None}
    assert [row | timed for row in again] == [row | timed for row in rows]


def test_a_table_reads_no_file_twice(config_of, opened):
    config = config_of(("gateskip", "dense"))
    run(config, jobs=1)
    whole = plan(config)
    opened.clear()
    outcome_of(whole)
    assert opened and len(opened) == len(set(opened))


@pytest.mark.parametrize("name", ["table.json", "methods.json"])
def test_outputs_that_changed_are_written_again(config_of, name):
    config = config_of("dense")
    folder = run(config, jobs=1).folder
    run(config, jobs=1)
    right = (folder / "table.json").read_bytes(), (folder / "methods.json").read_bytes()
    (folder / name).write_text("[]")
    run(config, jobs=1)
    assert ((folder / "table.json").read_bytes(), (folder / "methods.json").read_bytes()) == right
