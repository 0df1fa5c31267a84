"""`rm` and `clean`: what is listed is what is deleted, and without a terminal nothing goes unasked."""

import pytest

from adaptive_bench.store.manifest import Manifest, TrainingEntry
from adaptive_bench.store.records import Record


@pytest.fixture(autouse=True)
def out(command, tmp_path):
    """A run with a record, and a record of nobody."""
    for name in ("own", "free", "free/eval/test"):
        (tmp_path / "runs" / "records" / name).mkdir(parents=True)
        Record(tmp_path / "runs" / "records" / name).write("config", {"method": "mod"})
    folder = tmp_path / "runs" / "runs" / "nano-mod-seed1-00112233"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: nano\n")
    Manifest(tmp_path / "runs", (TrainingEntry("own", "mod", 1, None, True, None),), ()).write(folder)
    return tmp_path / "runs"


def _left(out):
    return sorted(path.name for place in ("records", "runs") for path in (out / place).iterdir())


@pytest.mark.parametrize("arguments", [("rm", "last"), ("clean",)])
def test_nothing_is_deleted_unasked(command, out, arguments):
    before = _left(out)
    listed = command(*arguments, "--dry-run")
    assert listed.exit_code == 0 and "nothing was deleted" in listed.stdout and "MB" in listed.stdout
    refused = command(*arguments)
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert _left(out) == before


def test_a_run_goes_with_what_is_its_alone(command, out):
    done = command("rm nano --yes")
    assert done.exit_code == 0 and "2 folder(s)" in done.stdout and _left(out) == ["free"]
    assert command("rm nano --yes").exit_code == 2


def test_clean_leaves_what_belongs_to_a_run(command, out):
    assert "free" in command("clean -y").stdout and _left(out) == ["nano-mod-seed1-00112233", "own"]
    assert "nothing is to be deleted" in command("clean").stdout
    assert command("clean --out nowhere").exit_code == 1


def test_what_a_stopped_study_goes_on_with_stays_until_trials_are_named(command, out):
    """Trainings it was stopped at or had not evaluated yet, and an evaluation that had not even written what it is."""
    for name in ("stopped", "begun/eval/one"):
        (out / "records" / name).mkdir(parents=True)
    Record(out / "records" / "stopped").write("config", {"method": "mod"})
    command("clean -y")
    assert _left(out) == ["begun", "nano-mod-seed1-00112233", "own", "stopped"]
    assert command("clean -y --trials").exit_code == 0
    assert _left(out) == ["nano-mod-seed1-00112233", "own"]
