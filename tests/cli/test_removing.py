"""`rm` and `clean`: what is listed is what is deleted, and without a terminal nothing goes unasked."""

import pytest

from adaptive_bench.store.atomic import write_sealed
from adaptive_bench.store.manifest import Manifest, TrainingEntry


@pytest.fixture(autouse=True)
def out(command, tmp_path):
    """A run with a record, and a record of nobody."""
    for name in ("own", "free", "free/eval/test"):
        (tmp_path / "runs" / "records" / name).mkdir(parents=True)
        write_sealed(tmp_path / "runs" / "records" / name / "config.json", {"method": "mod"})
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
    done = command("rm", "nano", "--yes")
    assert done.exit_code == 0 and "2 folder(s)" in done.stdout
    assert _left(out) == ["free"]
    assert command("rm", "nano", "--yes").exit_code == 2


def test_clean_leaves_what_belongs_to_a_run(command, out):
    assert "free" in command("clean", "-y").stdout
    assert _left(out) == ["nano-mod-seed1-00112233", "own"]
    assert "nothing is to be deleted" in command("clean").stdout
    assert command("clean", "--out", "nowhere").exit_code == 1


def test_what_a_stopped_study_goes_on_with_stays_until_trials_are_named(command, out):
    """Trainings it was stopped at or had not evaluated yet, and an evaluation that had not even written what it is."""
    for name in ("stopped", "begun/eval/one"):
        (out / "records" / name).mkdir(parents=True)
    write_sealed(out / "records" / "stopped" / "config.json", {"method": "mod"})
    command("clean", "-y")
    assert _left(out) == ["begun", "nano-mod-seed1-00112233", "own", "stopped"]
    assert command("clean", "-y", "--trials").exit_code == 0
    assert _left(out) == ["nano-mod-seed1-00112233", "own"]


def _linked(out, run):
    run.rename(out / "elsewhere")
    run.symlink_to(out / "elsewhere")


def _dangling(out, run):
    _linked(out, run)
    (out / "elsewhere").rename(out / "gone")


def _all_runs_elsewhere(out, run):
    (out / "runs").rename(out / "elsewhere")
    (out / "runs").symlink_to("gone")


def _no_list(out, run):
    for file in run.iterdir():
        file.unlink()
    (run / "table.json").write_text("[]")


@pytest.mark.parametrize("lose", [_linked, _dangling, _all_runs_elsewhere, _no_list])
def test_nothing_goes_while_a_run_is_not_among_those_that_are_listed(command, out, lose):
    lose(out, out / "runs" / "nano-mod-seed1-00112233")
    before = sorted(path.name for path in (out / "records").iterdir())
    done = command("clean", "-y", "--trials")
    assert done.exit_code == 1 and "What a run refers to is kept, but" in " ".join(done.stderr.split())
    assert sorted(path.name for path in (out / "records").iterdir()) == before
