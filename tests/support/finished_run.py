"""A finished run that a test may damage, and what reads it: fixtures and helpers."""

import shutil

import pytest

from adaptive_bench.cli.runs import documents
from adaptive_bench.runs import run
from adaptive_bench.store import manifest
from adaptive_bench.store.records import Record


def read(folder):
    known = manifest.read(folder)
    return documents(known, known.evaluations, 0.3)


def scores_of(folder):
    """The samples of every point that a run has measured."""
    known = manifest.read(folder)
    records = {one.record: known.record_of(one) for one in known.evaluations}
    return {(name, at): record.samples(at) for name, record in records.items() for at in record.savings()}


def table_only(config):
    return run(config, table_only=True)


def change(record, section, **values):
    """Other values in a section of a record."""
    record = Record(record)
    record.write(section, record.read(section) | values)


def without_point(record, saving):
    """Take a measured point off the list of a record; its documents stay, as after a kill."""
    points = record.read("points")
    record.write("points", {text: values for text, values in points.items() if text != f"{saving:g}"})


@pytest.fixture(scope="session")
def master(tmp_path_factory):
    """Where one finished run is kept for all tests."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def finished(master, config_of, tmp_path):
    """A finished run, its folder and the folder of a measured sweep; a copy that a test may damage."""
    if not (master / "out").is_dir():
        run(config_of("gateskip,dense", out=master / "out"), jobs=1)
    shutil.copytree(master / "out", tmp_path / "out")
    config = config_of("gateskip,dense")
    (folder,) = (config.out / "runs").iterdir()
    sweep = config.out / "records" / next(one for one in manifest.read(folder).evaluations if not one.variant).record
    assert "0.3" in Record(sweep).read("points")
    return config, folder, sweep
