"""What travels to a GPU machine without a network, and how it is put together there (`benchmarks/gpu_preset.py`)."""

import importlib
import subprocess
import sys
import tarfile
import time
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


@pytest.fixture
def preset(monkeypatch):
    """The script, imported as itself."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("gpu_preset")
    sys.modules.pop("gpu_preset", None)


@pytest.fixture
def parts(preset, tmp_path):
    """A folder with 1,000 bytes in parts of 300, and the bytes."""
    whole, folder = tmp_path / "whole", tmp_path / "parts"
    whole.write_bytes(bytes(i * i % 251 for i in range(1000)))
    folder.mkdir()
    preset.split(whole, folder, 300)
    return folder, whole.read_bytes()


def test_parts_have_the_sums_that_sha256sum_checks_and_give_the_file_again(preset, parts, tmp_path):
    folder, content = parts
    assert [file.stat().st_size for file in sorted(folder.glob("part-*"))] == [300, 300, 300, 100]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", preset.SUMS], cwd=folder, check=True)
    preset.join(folder, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content


def test_missing_and_damaged_parts_are_named(preset, parts, tmp_path):
    folder, _ = parts
    (folder / "part-01").unlink()
    (folder / "part-03").write_bytes(b"x" * 100)
    with pytest.raises(SystemExit, match=r"part-01 \(missing\), part-03 \(damaged\)\.$"):
        preset.join(folder, tmp_path / "again")


def _needs(name):
    """What a distribution needs without extras."""
    found = map(Requirement, requires(name) or ())
    return {canonicalize_name(one.name) for one in found if not one.marker or one.marker.evaluate({"extra": ""})}


def test_all_that_the_project_needs_is_packed_but_pytorch_transformers_and_their_needs(preset):
    python = "{}.{}".format(*sys.version_info)
    packed = {text.partition("==")[0] for text in preset.needed((), python)}
    there = {"torch", "transformers"} | _needs("torch") | _needs("transformers")
    assert {"numpy", "tokenizers", "safetensors", "huggingface-hub", "filelock"} <= there
    assert not packed & there
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert named | {"gguf"} <= packed | there
    assert set().union(*map(_needs, packed)) <= packed | there
    assert "aiohttp" in packed  # by the extra that datasets asks of fsspec, which PyTorch needs without


def test_what_else_the_machine_has_is_left_out_with_what_it_alone_needs(preset):
    everything, fewer = (preset.needed(has, "3.12") for has in ((), ("scikit_learn", "pandas")))
    names = {text.partition("==")[0] for text in set(everything) - set(fewer)}
    assert {"scikit-learn", "pandas", "narwhals"} <= names and "scipy" not in names
    assert set(fewer) < set(everything)


def test_a_step_ends_with_the_time_and_is_done_once(preset, tmp_path):
    machine = preset.Machine(tmp_path / "work", tmp_path / "out", 60)
    # What a shell starts in the background ignores interrupts, unless it says that it does not.
    code = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); print('begun', flush=True)"
    begun_s = time.monotonic()
    assert machine.call("-c", f"{code}; time.sleep(60)", seconds=1) is None
    assert time.monotonic() - begun_s < 15
    machine.once("once", lambda: machine.call("-c", "print('again'); raise SystemExit(3)"))
    machine.once("once", lambda: pytest.fail("it was done"))
    assert machine.call("-c", "raise SystemExit(3)") == 3
    assert "begun" in machine.tail() and machine.tail().count("again") == 1
    assert (tmp_path / "out" / "timings.txt").read_text().startswith("once: ")


def test_results_are_copied_without_weights(preset, tmp_path):
    machine = preset.Machine(tmp_path / "work", tmp_path / "out", 60)
    run, training = tmp_path / "work" / "runs" / "runs" / "one", tmp_path / "work" / "runs" / "records" / "two"
    for folder in (run, training / "checkpoint"):
        folder.mkdir(parents=True)
    for name in ("table.json", "leaderboard.md", "leaderboard.svg"):
        (run / name).write_text(name)
    for name in ("status.json", "state.pt", "checkpoint/tokenizer.json"):
        (training / name).write_text(name)
    machine.save()
    assert {file.name for file in machine.out.iterdir()} == {
        *("table.json", "leaderboard.md", "leaderboard.svg", "records.tar.gz")
    }
    with tarfile.open(machine.out / "records.tar.gz") as archive:
        assert {Path(name).name for name in archive.getnames()} == {
            *("status.json", "table.json", "leaderboard.md", "leaderboard.svg")
        }
