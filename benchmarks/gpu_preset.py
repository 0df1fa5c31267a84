"""Runs a preset on a GPU machine that has PyTorch and transformers but no network, and packs what it needs for that.

    python benchmarks/gpu_preset.py pack FOLDER --model FILE --data-dir FOLDER --python 3.12   # here
    python FOLDER/gpu_preset.py run FOLDER --out OUT --gpu-first -- --seeds 3                    # there

`pack` needs a machine where the project is installed and a package index can be reached. It writes into FOLDER this
file, `SHA256SUMS`, and `part-00`, `part-01` ..., each small enough to be transferred alone. The parts form one archive:
the model (a GGUF file, or a folder in Hugging Face layout), the data sets of the preset `smollm2`, the files of
`make gpu`, and wheels of the project and of its run-time dependencies, in the versions installed here, for Linux on
this architecture. It leaves out what the other machine has: PyTorch, transformers, the direct dependencies of these
two, and what `--has` names.

`run` joins the parts if all sums agree, installs the wheels into a folder of `--work`, does `make gpu` if asked, then
runs `adaptive-bench run --config smollm2` with the options after `--`. After `--minutes` it interrupts the current
step, and the same command on the same machine resumes there: `--work` holds everything, so the parts may be gone. While
it runs, OUT gets `gpu.json`, `leaderboard.md`, `leaderboard.svg`, `table.json`, `log.txt`, `timings.txt` (seconds of
each step) and `records.tar.gz`, the runs without weights: unpacked elsewhere, they work with every command for runs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

SUMS = "SHA256SUMS"
PRESET = "smollm2"
DATA = ("c4_sample", "wikitext_2", "hellaswag", "piqa", "lambada", "commonsense_qa")  # data sets of that preset
THERE = ("torch", "transformers")
GLIBC = 34  # wheels may need glibc 2.34 or older
PART_BYTES = 40_000_000
SAVE_S, STOP_S = 20.0, 45.0  # time between two copies of results; time to end an interrupted step and write the table
WEIGHTS = (".safetensors", ".pt")
ROOT = Path(__file__).parent.parent
PROJECT = ("pyproject.toml", "README.md", "LICENSE", "adaptive_bench", "configs", "leaderboard", "methods", "tasks")


def needed(has: Iterable[str], python: str) -> list[str]:
    """Requirements to pack: the project's dependencies on a version of Python, pinned to the versions installed here.

    Args:
        has: Further distributions that the machine has; dependencies of these alone are not packed either.
        python: Version of Python on the machine.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    def needs(name: str, extra: str = "") -> set[Requirement]:
        place = {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}
        found = map(Requirement, distribution(name).requires or ())
        return {one for one in found if one.marker is None or one.marker.evaluate(place)}

    there = {canonicalize_name(name) for name in (*THERE, *has, *(one.name for name in THERE for one in needs(name)))}
    pinned: dict[str, str] = {}
    waiting = [(Requirement("adaptive-bench"), ""), (Requirement("adaptive-bench"), "gguf")]
    seen = {(name, "") for name in there}
    while waiting:
        one, extra = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            found = needs(name, extra) - (needs(name) if extra else set())
            pinned[name] = f"{name}=={distribution(name).version}"
        except PackageNotFoundError:  # needed only on another version of Python
            found, pinned[name] = set(), f"{name}{one.specifier}"
        waiting += [(need, extra) for need in found for extra in ("", *need.extras)]
    return sorted(text for name, text in pinned.items() if name not in {*there, "adaptive-bench"})


def fetch_wheels(requirements: Sequence[str], python: str, folder: Path) -> None:
    """Fetch wheels of the requirements and build one of this checkout; source distributions are built here."""
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check"]
    names = [*(f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1)), "manylinux2014", "manylinux1", "linux"]
    place = [f"--platform={name}_{platform.machine()}" for name in names] + [f"--python-version={python}"]
    subprocess.run([*pip, "download", "--no-deps", "--prefer-binary", *place, "-d", folder, *requirements], check=True)
    sources = [file for file in folder.iterdir() if file.suffix != ".whl"]
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__")
    with tempfile.TemporaryDirectory() as copy, tempfile.TemporaryDirectory() as built:
        for name in PROJECT:  # copied without files that earlier builds left
            one = ROOT / name
            shutil.copytree(one, Path(copy, name), ignore=ignored) if one.is_dir() else shutil.copy(one, copy)
        subprocess.run([*pip, "wheel", "--no-deps", "-w", built, copy, *sources], check=True)
        for file in Path(built).iterdir():
            if not file.name.endswith("-none-any.whl"):
                sys.exit(f"The index has no wheel for Python {python} of what became {file.name}.")
            shutil.copy(file, folder)
    for file in sources:
        file.unlink()


def split(file: Path, folder: Path, part_bytes: int) -> None:
    """Split a file into parts inside a folder, and write their sums."""
    sums = []
    with file.open("rb") as stream:
        while block := stream.read(part_bytes):
            part = folder / f"part-{len(sums):02}"
            part.write_bytes(block)
            sums.append(f"{hashlib.sha256(block).hexdigest()}  {part.name}\n")
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")


def join(folder: Path, file: Path) -> None:
    """Join the parts in a folder; exits with the names of missing or damaged parts."""
    wrong = []
    with file.open("wb") as stream:
        for digest, name in map(str.split, (folder / SUMS).read_text(encoding="utf-8").splitlines()):
            block = (folder / name).read_bytes() if (folder / name).is_file() else b""
            if hashlib.sha256(block).hexdigest() != digest:
                wrong.append(f"{name} ({'damaged' if block else 'missing'})")
            stream.write(block)
    if wrong:
        sys.exit(f"Not all parts are in {folder}: {', '.join(wrong)}.")


def pack(given: argparse.Namespace) -> None:
    """Write the folder that is carried to the machine."""
    given.folder.mkdir(parents=True, exist_ok=True)
    for old in given.folder.glob("part-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        wheels, whole = Path(folder) / "wheels", Path(folder) / "all.tar.gz"
        wheels.mkdir()
        fetch_wheels(needed(given.has.split(","), given.python), given.python, wheels)
        with tarfile.open(whole, "w:gz", compresslevel=6) as archive:
            archive.add(wheels, "wheels")
            archive.add(given.model, f"model/{given.model.name}")
            for name in DATA:
                archive.add(given.data_dir / name, f"data/{name}")
            for file in sorted((ROOT / "benchmarks").glob("*.py")):
                archive.add(file, f"benchmarks/{file.name}")
        split(whole, given.folder, given.part_bytes)
        shutil.copy(__file__, given.folder)
        sizes = [file.stat().st_size for file in wheels.iterdir()]
        print(f"{len(sizes)} wheels of {sum(sizes) / 1e6:.1f} MB, all together {whole.stat().st_size / 1e6:.1f} MB")


class Machine:
    """Steps on the machine with the GPU, and copies of their results.

    Args:
        work: Folder that stays between two commands.
        out: Folder for the results.
        seconds: Time for this command.
    """

    def __init__(self, work: Path, out: Path, seconds: float) -> None:
        self.work, self.out, self.log = work, out, work / "log.txt"
        self.end_s = time.monotonic() + seconds - STOP_S
        self.site = work / "site-packages"  # dill, which names the caches of datasets, recognises this folder name
        path = os.pathsep.join(filter(None, (str(self.site), os.environ.get("PYTHONPATH"))))
        self.environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
        for folder in (work, out):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the seconds that a step takes."""
        begun_s = time.monotonic()
        try:
            yield
        finally:
            line = f"{name}: {time.monotonic() - begun_s:.1f} s"
            print(line, flush=True)
            with (self.work / "timings.txt").open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
            self.save()

    def once(self, name: str, do: Callable[[], object]) -> None:
        """Run a step, unless it has already finished."""
        if not (done := self.work / f"{name}.done").exists():
            with self.step(name):
                do()
            done.touch()

    def call(self, *arguments: str | Path, seconds: float | None = None) -> int | None:
        """Run this Python with the arguments, with output to the log.

        Returns:
            The exit code, or `None` if the time was over.
        """
        command = [sys.executable, *map(str, arguments)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, process_group=0)
        end_s = self.end_s if seconds is None else time.monotonic() + seconds
        try:
            while (left_s := end_s - time.monotonic()) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(min(left_s, SAVE_S))
                self.save()
            return None
        finally:
            for one in (signal.SIGINT, signal.SIGKILL):
                if process.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                        os.killpg(process.pid, one)
                        process.wait(STOP_S / 3)

    def unpack(self, folder: Path) -> None:
        """Join and unpack the parts in a folder."""
        join(folder, whole := self.work / "all.tar.gz")
        with tarfile.open(whole) as archive:
            archive.extractall(self.work, filter="data")
        whole.unlink()

    def install(self) -> None:
        """Install the wheels into a folder that takes precedence over the machine's packages."""
        wheels = sorted((self.work / "wheels").glob("*.whl"))
        options = ("--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", self.site)
        if self.call("-m", "pip", "install", *options, *wheels) != 0:
            sys.exit(f"The wheels are not installed:\n{self.tail()}")
        self.call("-m", "pip", "check")  # only for the log, since versions that do not match may still work

    def save(self) -> None:
        """Copy the results so far."""
        runs = self.work / "runs"
        files = [self.work / name for name in ("gpu.json", "log.txt", "timings.txt")]
        for table in sorted(runs.glob("runs/*/table.json"), key=lambda file: file.stat().st_mtime)[-1:]:
            files += [table, table.with_name("leaderboard.md"), table.with_name("leaderboard.svg")]
        with tarfile.open(self.out / "records.tar.gz", "w:gz", compresslevel=6) as archive:
            for file in sorted(runs.rglob("*")):
                if file.is_file() and file.suffix not in WEIGHTS and "checkpoint" not in file.parts:
                    with contextlib.suppress(FileNotFoundError):  # a temporary file that was renamed
                        archive.add(file, file.relative_to(self.work))
        for file in filter(Path.exists, files):
            shutil.copy(file, self.out)

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-8000:]


def run(given: argparse.Namespace, options: Sequence[str]) -> None:
    """Do the remaining steps within the time."""
    machine, work = Machine(given.work, given.out, 60 * given.minutes), given.work
    machine.once("unpack", lambda: machine.unpack(given.folder))
    machine.once("install", machine.install)
    if given.gpu_first is not None:
        command = (work / "benchmarks" / "gpu.py", "--out", work / "gpu.json", *given.gpu_first.split())
        machine.once("gpu", lambda: print("make gpu ended with", machine.call(*command)))
    (model,) = (work / "model").iterdir()
    given_there = ("--config", PRESET, "--model", model, "--data-dir", work / "data", "--out", work / "runs")
    command = ("-m", "adaptive_bench", "run", *given_there, *options)
    code = None
    if time.monotonic() < machine.end_s:
        with machine.step("run"):
            code = machine.call(*command)
    if code is None:
        with machine.step("table"):
            machine.call(*command, "--table-only", seconds=STOP_S / 3)
    print(machine.tail())
    sys.exit("The time is over. Give the same command again to go on." if code is None else code)


def main(arguments: list[str]) -> None:
    """Pack or run."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="pack what the machine needs")
    packing.add_argument("folder", type=Path, help="folder for the parts")
    packing.add_argument("--model", type=Path, required=True, help="GGUF file, or folder in Hugging Face layout")
    packing.add_argument("--data-dir", type=Path, required=True, help="folder with local data files (docs/data.md)")
    packing.add_argument("--has", default="", help="further packages of the machine, with commas: pandas,pyarrow")
    packing.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="Python there")
    packing.add_argument("--part-bytes", type=int, default=PART_BYTES, help="most bytes of a part")
    running = commands.add_parser("run", help="run the preset; options of adaptive-bench run follow --")
    running.add_argument("folder", type=Path, help="folder with the parts")
    running.add_argument("--out", type=Path, required=True, help="folder for the results")
    running.add_argument("--gpu-first", nargs="?", const="", metavar="ARGS", help="first do make gpu with ARGS")
    running.add_argument("--minutes", type=float, default=9.0, help="time for this command")
    running.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "adaptive-bench-gpu")
    given = parser.parse_args(arguments[:at])
    pack(given) if given.command == "pack" else run(given, arguments[at + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
