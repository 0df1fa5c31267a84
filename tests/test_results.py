"""Runs are found by folder, by name, and by a part of the name that only one has."""

import pytest

from adaptive_bench.errors import UsageError
from adaptive_bench.results import find_run, run_folders, run_name

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


def test_runs_of_another_folder_are_found_below_it(tmp_path):
    assert find_run("other/nano").resolve() == tmp_path / "other" / "runs" / NAMES[0]
    assert run_name(find_run("other/nano")) == f"other/{NAMES[0]}"


def test_every_run_is_found_by_the_name_it_is_shown_with(tmp_path):
    for out in ("runs", "other"):
        for folder in run_folders((tmp_path / out).relative_to(tmp_path)):
            assert find_run(run_name(folder)) == folder


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nano-gateskip", "2 runs begin with"),
        ("nono", "no such run in 'runs'"),
        ("nowhere/nano", "`adaptive-bench run`"),
    ],
)
def test_what_does_not_name_one_run_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        find_run(text)
