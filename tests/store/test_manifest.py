"""Nothing that a run refers to is ever deleted, and all that nothing refers to is."""

import json
import random
from pathlib import Path

import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.progress import SilentReporter
from adaptive_bench.store import atomic, lock, manifest
from adaptive_bench.store.manifest import EvaluationEntry, Manifest, TrainingEntry
from adaptive_bench.store.records import Record


def _record(out, record, **said):
    folder = out / "records" / record
    folder.mkdir(parents=True, exist_ok=True)
    Record(folder).write("config", said)
    (folder / "log.txt").write_bytes(b"x" * 100)


def _run(out, name, trainings, evaluations, bases):
    folder = out / "runs" / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: nano\n")
    listed = Manifest(
        out,
        tuple(TrainingEntry(one, "mod", 1, None, True, bases.get(one)) for one in trainings),
        tuple(EvaluationEntry(one, "mod", "task", "test", "acc", (0.1,)) for one in evaluations),
    )
    listed.write(folder)
    return folder


def _folder(out, draw):
    """Trainings, some that start from an earlier one, with evaluations, and runs that list some of each."""
    trainings = [f"t{number}" for number in range(draw.randint(1, 8))]
    later = [(number, one) for number, one in enumerate(trainings) if number]
    bases = {one: draw.choice(trainings[:number]) for number, one in later if draw.random() < 0.4}
    evaluations, trials = [], set()
    for one in trainings:
        _record(out, one, method="mod", **({"base": bases[one]} if one in bases else {}))
        is_trial = draw.random() < 0.3
        own = [f"{one}/eval/e{number}" for number in range(draw.randint(0, 3))]
        for record in own:
            _record(out, record, method="mod", task="task", **({"split": "validation"} if is_trial else {}))
        evaluations += own
        trials |= {one} if is_trial or not own else set()  # not evaluated yet: a stopped study goes on with it

    def some(of):
        return draw.sample(of, draw.randint(0, len(of)))

    names = [f"run{number}" for number in range(draw.randint(0, 4))]
    runs = [_run(out, name, some(trainings), some(evaluations), bases) for name in names]
    return trainings, evaluations, trials, bases, runs


def _remove(found):
    for one in found:
        atomic.remove(one.folder)


def _there(out):
    return {path.parent.relative_to(out / "records").as_posix() for path in (out / "records").rglob("record.json")}


def _needed(runs, bases):
    """By the definition: what is listed, what that hangs on, and what it starts from, again and again."""
    found = set()
    for run in runs:
        listed = json.loads((run / "manifest.json").read_text())
        found |= {one["record"] for one in (*listed["trainings"], *listed["evaluations"])}
    found |= {record.partition("/")[0] for record in found}
    while more := {bases[one] for one in found if one in bases} - found:
        found |= more
    return found


@pytest.mark.parametrize("seed", range(40))
def test_what_runs_refer_to_stays_and_all_else_goes(tmp_path, seed):
    draw = random.Random(seed)
    trainings, evaluations, trials, bases, runs = _folder(tmp_path, draw)
    kept_trials = {one for one in (*trainings, *evaluations) if one.partition("/")[0] in trials}
    while more := {bases[one] for one in kept_trials if one in bases} - kept_trials:
        kept_trials |= more
    found = manifest.unreferenced(tmp_path)
    _remove(found)
    assert _there(tmp_path) == _needed(runs, bases) | kept_trials
    _remove(manifest.unreferenced(tmp_path, trials=True))
    assert _there(tmp_path) == _needed(runs, bases)
    while runs:
        gone, before = runs.pop(draw.randrange(len(runs))), _there(tmp_path)
        own = _needed([gone], {})
        _remove(manifest.removable_with(gone))
        assert not gone.exists() and _needed(runs, bases) <= _there(tmp_path)
        assert before - _there(tmp_path) <= own, "what the run does not list"
        _remove(manifest.unreferenced(tmp_path, trials=True))
        assert _there(tmp_path) == _needed(runs, bases)


def test_while_somebody_is_at_a_record_nothing_is_removed(tmp_path):
    _record(tmp_path, "own", method="mod")
    _record(tmp_path, "free", method="mod")
    _record(tmp_path, "free/eval/test", method="mod", task="task")
    run = _run(tmp_path, "run", ["own"], [], {})
    with lock.exclusive(tmp_path / "records" / "own", "train", SilentReporter()):
        with pytest.raises(EnvironmentProblem, match="under way"):
            manifest.removable_with(run)
        with pytest.raises(EnvironmentProblem, match="under way"):
            manifest.unreferenced(tmp_path)
    assert [one.folder.name for one in manifest.unreferenced(tmp_path)] == ["free"]
    assert [one.folder.name for one in manifest.removable_with(run)] == ["run", "own"]


@pytest.mark.parametrize("lost", [True, False])
def test_where_nobody_can_tell_what_a_run_refers_to_nothing_is_removed(tmp_path, lost):
    _record(tmp_path, "own", method="mod")
    broken, other = (_run(tmp_path, name, ["own"], [], {}) for name in ("broken", "other"))
    file = broken / manifest.FILE
    file.unlink() if lost else file.write_text(file.read_text()[:-9])
    for look in (lambda: manifest.unreferenced(tmp_path), lambda: manifest.removable_with(other)):
        with pytest.raises(EnvironmentProblem, match=r"are not known: .*adaptive-bench rm"):
            look()
    assert [one.folder for one in manifest.removable_with(broken)] == [broken], "its own folder alone is known"
    _remove(manifest.removable_with(broken))
    assert len(manifest.removable_with(other)) == 2


def test_a_run_on_a_disk_that_is_not_there_keeps_everything(tmp_path):
    _record(tmp_path, "own", method="mod")
    run = _run(tmp_path, "mine", ["own"], [], {})
    run.rename(tmp_path / "disk")
    run.symlink_to(tmp_path / "disk")
    assert manifest.unreferenced(tmp_path) == []
    (tmp_path / "disk").rename(tmp_path / "gone")
    with pytest.raises(EnvironmentProblem, match="are not known"):
        manifest.unreferenced(tmp_path)


def test_what_is_no_run_of_an_output_folder_is_refused(tmp_path):
    folder = tmp_path / "entries" / "nano"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: nano\n")
    linked = tmp_path / "runs" / "linked"
    linked.parent.mkdir()
    linked.symlink_to(folder)
    entry = _run(tmp_path, "entry", [], [], {})
    (entry / "points.parquet").touch()
    for path in (folder, linked, entry, tmp_path, Path("nowhere")):
        with pytest.raises(UsageError, match=r"config\.yaml|lies elsewhere|an entry of a board|no such run"):
            manifest.removable_with(path)
