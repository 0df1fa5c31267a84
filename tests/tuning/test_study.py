"""The law of a study: how many trials, which ones, and what becomes of those that fail, are stopped or are killed."""

import multiprocessing
import os
import signal
import time

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.spec import MethodSpec
from adaptive_bench.tuning.space import Space
from adaptive_bench.tuning.study import Intermediate, Study, TrialFailed

PARAMS = ["sparsity_weight=log:1e-3:1"]


@pytest.fixture(autouse=True)
def _silent():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def opened(folder, trials=8, params=PARAMS):
    folder.mkdir(exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    return Study("s/gateskip", storage, folder / "gateskip", Space.of(MethodSpec("gateskip"), params), trials)


def score(values):
    return 1 - abs(float(values.get("sparsity_weight", 1.0)) - 0.1)


def run_trial(values):
    yield Intermediate(score(values), True, {"t": [score(values)]})


def finished(study):
    return [one for one in study.all if one.state.is_finished() and "interrupted" not in one.user_attrs]


def tried(study):
    return [one.user_attrs["values"] for one in finished(study)]


def to_the_end(study, work=run_trial):
    while study.work(work):
        pass


def test_as_many_trials_as_asked_for_the_first_with_the_defaults(tmp_path):
    study = opened(tmp_path)
    to_the_end(study)
    assert len(study.all) == 8 and {one.state for one in study.all} == {TrialState.COMPLETE}
    assert tried(study)[0] == {} and len({str(values) for values in tried(study)}) == 8
    assert study.best.value == max(map(score, tried(study))) >= score({})
    assert not study.work(run_trial)


def test_more_trials_continue_the_study_that_is_there(tmp_path):
    to_the_end(opened(tmp_path, trials=3))
    more = opened(tmp_path, trials=5)
    assert more.left() == 2
    to_the_end(more)
    assert len(more.all) == 5


def test_an_interrupted_study_tries_what_an_undisturbed_one_tries(tmp_path):
    undisturbed, disturbed = opened(tmp_path / "one"), opened(tmp_path / "two")
    to_the_end(undisturbed)

    def stopped(values):
        raise KeyboardInterrupt
        yield

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            disturbed.work(stopped)
        disturbed = opened(tmp_path / "two")
        assert disturbed.work(run_trial) and disturbed.work(run_trial)
    to_the_end(disturbed)
    assert tried(disturbed) == tried(undisturbed)
    interrupted = [one for one in disturbed.all if "interrupted" in one.user_attrs]
    assert len(interrupted) == 4 and "KeyboardInterrupt" in interrupted[0].user_attrs["reason"]


def test_a_failed_trial_is_kept_with_its_reason_and_counts(tmp_path):
    def failing(values):
        if not values:
            raise TrialFailed("the loss is not a number")
        yield from run_trial(values)

    study = opened(tmp_path, trials=3)
    to_the_end(study, failing)
    assert [one.state.name for one in study.all] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert study.all[0].user_attrs["reason"] == "the loss is not a number"


def test_a_broken_trial_costs_itself_and_a_broken_machine_none(tmp_path):
    def broken(values):
        raise ZeroDivisionError("of a plugin")
        yield

    def full(values):
        raise EnvironmentProblem("the disk is full")
        yield

    study = opened(tmp_path, trials=2)
    assert study.work(broken)
    with pytest.raises(EnvironmentProblem):
        study.work(full)
    to_the_end(study)
    assert [one.state.name for one in finished(study)] == ["FAIL", "COMPLETE"]
    assert study.all[0].user_attrs["reason"] == "ZeroDivisionError: of a plugin"


def test_a_trial_below_the_median_stops_early(tmp_path):
    steps = []

    def two_steps(values):
        for last in (False, True):
            steps.append(values)
            yield Intermediate(score(values), last, {})

    study = opened(tmp_path, trials=12)
    to_the_end(study, two_steps)
    pruned = [one for one in study.all if one.state is TrialState.PRUNED]
    assert pruned and len(steps) == 24 - len(pruned)
    assert all("median" in one.user_attrs["reason"] for one in pruned)
    assert study.all[0].state is TrialState.COMPLETE  # nothing to compare with yet


def _work_slowly(folder):
    def slow(values):
        (folder / f"began-{os.getpid()}").touch()
        time.sleep(0.2)
        yield from run_trial(values)

    to_the_end(opened(folder, trials=6), slow)


def test_a_killed_worker_leaves_its_trial_to_the_next(tmp_path):
    worker = multiprocessing.get_context("fork").Process(target=_work_slowly, args=(tmp_path,))
    worker.start()
    while not (tmp_path / f"began-{worker.pid}").exists():
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    study = opened(tmp_path, trials=6)
    to_the_end(study)
    assert len(finished(study)) == 6 and TrialState.RUNNING not in {one.state for one in study.all}
    assert len({str(values) for values in tried(study)}) == 6


def test_two_workers_share_one_study(tmp_path):
    workers = [multiprocessing.get_context("fork").Process(target=_work_slowly, args=(tmp_path,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    study = opened(tmp_path, trials=6)
    assert len(study.all) == 6 and {one.state for one in study.all} == {TrialState.COMPLETE}
    assert len(list(tmp_path.glob("began-*"))) == 2


def test_a_worker_that_is_killed_before_it_draws_does_not_change_what_is_tried(tmp_path, monkeypatch):
    undisturbed = opened(tmp_path / "one")
    to_the_end(undisturbed)
    for place in (0, 2, 6):  # the defaults, a given point, one that is drawn
        disturbed = opened(tmp_path / f"two{place}")
        for _ in range(place):
            assert disturbed.work(run_trial)
        _, lock = disturbed._claim()  # a trial is asked for, and nothing more
        lock.release()
        to_the_end(opened(tmp_path / f"two{place}"))
        assert tried(disturbed) == tried(undisturbed), place


def test_nothing_is_left_of_workers_that_were_killed(tmp_path):
    study = opened(tmp_path, trials=2)
    _, lock = study._claim()
    lock.release()  # its process ends; the file of the lock stays
    assert study.work(run_trial)
    (study.folder / "trial-0.lock").touch()  # killed after its last word
    to_the_end(study)
    assert [path.name for path in study.folder.iterdir()] == ["study.lock"]


def test_a_lock_that_is_held_is_not_removed(tmp_path):
    study, other = opened(tmp_path, trials=2), opened(tmp_path, trials=2)
    _, lock = study._claim()
    to_the_end(other)
    assert (study.folder / "trial-0.lock").is_file() and study.all[0].state is TrialState.RUNNING
    lock.release()


def test_a_database_without_space_costs_no_trial(tmp_path, monkeypatch):
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    study = Study("s/gateskip", storage, tmp_path / "gateskip", Space.of(MethodSpec("gateskip"), PARAMS), 2)

    def full(*_):
        raise StorageInternalError("An exception is raised during the commit.") from OSError("disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(study.study._storage, "set_trial_intermediate_value", full)
        with pytest.raises(EnvironmentProblem, match="disk is full"):
            study.work(run_trial)
    to_the_end(study)
    assert [one.state.name for one in finished(study)] == ["COMPLETE", "COMPLETE"]
