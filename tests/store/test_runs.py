"""Runs are found by folder, by name, and by a part of the name that only one has."""

import os
from pathlib import Path

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.store.runs import find_run, is_output, run_folders, run_name

NAMES = ("nano-gateskip-mod-seed1-3f9a2c1b", "nano-gateskip-mod-3seeds-77aa0c1b", "tiny-calm-seed1-00112233")


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in ("runs", "other"):
        for name in NAMES if out == "runs" else NAMES[:1]:
            (tmp_path / out / "runs" / name).mkdir(parents=True)
            (tmp_path / out / "runs" / name / "config.yaml").touch()
    return tmp_path / "runs" / "runs"


@pytest.mark.parametrize(
    "text",
    [NAMES[0], "nano-gateskip-mod-s", "3f9a2c1b", "3f9", "seed1-3f9a2c1b", f"runs/runs/{NAMES[0]}", f"runs/{NAMES[0]}"],
)
def test_a_run_has_several_names(runs, text):
    assert find_run(text).resolve() == runs / NAMES[0]


def test_last_is_the_run_that_was_begun_last_and_names_are_those_of_the_folder_that_is_asked(runs, tmp_path):
    os.utime(runs / NAMES[1] / "config.yaml", (2e9, 2e9))
    assert find_run("last").resolve() == runs / NAMES[1]
    assert find_run("nano", Path("other")) == Path("other/runs") / NAMES[0]
    assert find_run("other/last") == find_run("last", Path("other")) == Path("other/runs") / NAMES[0]
    (tmp_path / "last").mkdir()
    assert find_run("last") == Path("last")
    for text, out, told in (("nowhere/last", "runs", "nowhere"), ("tiny", "other", "other")):
        with pytest.raises(UsageError, match=f"no such run in '{told}'"):
            find_run(text, Path(out))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nano-gateskip", "2 runs begin with"),
        ("nowhere/nano", "`adaptive-bench run`"),
        ("runs/tiny-clam-seed1-00112233", f"Did you mean '{NAMES[2]}'"),
    ],
)
def test_what_does_not_name_one_run_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        find_run(text)


def test_records_of_somebody_beside_the_default_folder_make_no_output_folder(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "runs" / "records").mkdir()
    assert is_output(tmp_path / "runs") and not is_output(tmp_path)


def test_runs_are_listed_by_their_names_wherever_they_lie_but_among_records(runs, tmp_path, monkeypatch):
    for number in range(5):
        (tmp_path / "runs" / "records" / f"{number}" / "eval" / "task").mkdir(parents=True)
    (tmp_path / "deep" / "out" / "runs" / "some-run").mkdir(parents=True)
    (tmp_path / "deep" / "out" / "runs" / "some-run" / "config.yaml").touch()
    seen, look = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path=".": seen.append(Path(os.fspath(path))) or look(path))
    assert {folder.name for folder in run_folders(tmp_path)} == {*NAMES, "some-run"}
    assert not [path for path in seen if "eval" in path.parts]
    for folder in (*run_folders(Path("runs")), *run_folders(Path("other"))):
        assert find_run(run_name(folder)) == folder
    (runs / NAMES[0]).rename(tmp_path / "moved")
    (runs / NAMES[0]).symlink_to(tmp_path / "moved")
    assert Path("runs/runs") / NAMES[0] in run_folders(Path("runs"))
