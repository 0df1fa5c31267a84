"""What a machine does to a run besides killing it: wrong clocks, odd paths, few files, two at once, a full disk.

    python tests/faults/administrator.py                 # all of it; exit code 1 unless all end in equal tables
    python tests/faults/administrator.py --only clock    # what has this in its name

Needs gcc for the clocks, and the right to mount for a disk that is full indeed.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import commands
import shim
from commands import Command, Ending, differences
from shim import Fault, How

HOUR_S, YEAR_S = 3600, 365 * 24 * 3600
_OWN_PATH = ("config.yaml", "command.json", "run.json")  # what says where the folder is, each in its own way


class Machine:
    """A place where one command is given in many ways."""

    def __init__(self, command: Command, home: Path) -> None:
        self.command, self.home = command, home
        whole = self.give(home / "whole")
        if whole.code:
            raise SystemExit(f"A command that is left alone ends with {whole.code}:\n{whole.output}")
        self.operations = len(whole.operations)
        self.expected = self.read(home / "whole")

    def give(self, out: Path | str, fault: Fault | None = None, **more: object) -> Ending:
        """The command once."""
        return self.command.give(self.home / f"log-{threading.get_ident()}", out, fault, **more)  # type: ignore[arg-type]

    def read(self, out: Path) -> Mapping[str, bytes]:
        """What must be equal wherever the folder is."""
        found = self.command.reads(out)
        return {name: content for name, content in found.items() if not name.endswith(_OWN_PATH)}

    def wrong_with(self, out: Path, *endings: Ending) -> list[str]:
        """Everything that is not as it should be after commands that should have ended well."""
        told = [
            f"It ends with {ending.code}: {' '.join(ending.output.split())[-900:]}" for ending in endings if ending.code
        ]
        told += ["It hangs." for ending in endings if ending.code is None]
        if told and not out.is_dir():
            return told
        return told + differences(self.expected, self.read(out)) + self.command.remains(out)


def clock_is_set(machine: Machine, before_s: int, at: float) -> list[str]:
    """Killed at a share of its operations, and given again with another time on the clock.

    Args:
        before_s: What the clock showed too much at first.
    """
    out = machine.home / "clock"
    machine.give(out, Fault(How.KILL_BEFORE, max(1, int(machine.operations * at)), clock_shift_s=before_s))
    for path in [out, *out.rglob("*")]:  # the kernel's clock is not shifted: files get the time that they would have
        when_s = path.lstat().st_mtime + before_s
        os.utime(path, (when_s, when_s), follow_symlinks=False)
    again = machine.give(out)
    wrong = machine.wrong_with(out, again)
    if re.search(r"-\d+:\d\d", again.output):
        wrong.append(f"It forecasts a negative time: {again.output[-500:]}")
    return wrong


def clock_is_set_during(machine: Machine, shift_s: int, at: float) -> list[str]:
    """The clock jumps at a share of the operations."""
    out = machine.home / "clock"
    ending = machine.give(out, Fault(clock_shift_s=shift_s, clock_from=int(machine.operations * at)))
    wrong = machine.wrong_with(out, ending)
    return wrong + ["It forecasts a negative time."] * bool(re.search(r"-\d+:\d\d", ending.output))


def path_is(machine: Machine, name: str) -> list[str]:
    """A folder with a name that breaks what joins paths carelessly."""
    out = machine.home / "paths" / name
    return machine.wrong_with(out, machine.give(out), machine.give(out))


def path_is_relative(machine: Machine) -> list[str]:
    """As by default, killed half-way."""

    def go() -> None:
        os.chdir(machine.home)

    fault = Fault(How.KILL_BEFORE, machine.operations // 2)
    out = machine.home / "relative"
    machine.give("relative", fault, counted=out, before=go)
    return machine.wrong_with(out, machine.give("relative", before=go))


def folder_is_a_link(machine: Machine, other: Path) -> list[str]:
    """`--out` is a link to another file system, and so are the records in it; killed half-way."""
    target, records = other / "out", other / "records"
    for folder in (target, records):
        folder.mkdir()
    (target / "records").symlink_to(records)
    out = machine.home / "link"
    out.symlink_to(target)
    killed = machine.give(out, Fault(How.KILL_BEFORE, machine.operations // 2))
    wrong = [] if killed.code == -9 else [f"It was to be killed but ended with {killed.code}."]
    wrong += [f"It ends with {code}." for code in [machine.give(out).code] if code]
    found = dict(machine.read(target)) | {f"records/{name}": text for name, text in machine.read(records).items()}
    remains = machine.command.remains(target) + machine.command.remains(records)
    return wrong + differences(machine.expected, found) + remains


def few_files(machine: Machine, files: int) -> list[str]:
    """A process may have so many files open and no more; then as many as it likes."""
    out = machine.home / "few"

    def limit() -> None:
        now = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 - names alone
        resource.setrlimit(resource.RLIMIT_NOFILE, (now + files, now + files))

    first = machine.give(out, before=limit)
    wrong = disturbed(first, "Too many open files")
    return wrong + machine.wrong_with(out, machine.give(out))


def disturbed(ending: Ending, *reasons: str) -> list[str]:
    """What is wrong with how a command ended that could not go on: it says one of the reasons, or goes on after all."""
    text = " ".join(ending.output.split())
    print(f"(ended with {ending.code})", end=" ", file=sys.stderr, flush=True)
    if ending.code == 0:
        return []
    if ending.code is None:
        return ["It hangs."]
    if "Defect" in text or "Traceback" in text or not any(reason in text for reason in reasons):
        return [f"It should say {reasons[0]!r} and no more, but ends with {ending.code}: {text[-900:]}"]
    return []


def two_at_once(machine: Machine, after_s: float) -> list[str]:
    """The same command twice, the second one some time after the first."""
    out = machine.home / "two"
    endings: list[Ending] = []
    threads = [threading.Thread(target=lambda: endings.append(machine.give(out))) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(after_s)
    for thread in threads:
        thread.join()
    return machine.wrong_with(out, *endings)


def full_disk(machine: Machine, size_kb: int, mount: Path) -> list[str]:
    """A file system of so many bytes, which then grows."""
    mount.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", mount], check=True)
    try:
        out = mount / "out"
        first = machine.give(out)
        wrong = disturbed(first, "No space left", "of disk space")
        subprocess.run(["mount", "-o", "remount,size=100m", mount], check=True)
        return wrong + machine.wrong_with(out, machine.give(out))
    finally:
        subprocess.run(["umount", mount], check=True)


def may_mount() -> bool:
    """Whether this process may mount a file system."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=False, capture_output=True)
        return made.returncode == 0 and not subprocess.run(["umount", folder], check=True).returncode


def attacks(other: Path) -> dict[str, Callable[[Machine], list[str]]]:
    """All of them by name.

    Args:
        other: A folder on another file system.
    """
    found: dict[str, Callable[[Machine], list[str]]] = {}
    for name, shift_s in {"an hour": HOUR_S, "a year": YEAR_S}.items():
        for share in (0.3, 0.6, 0.97):
            at = f"at {share:.0%}"
            found[f"clock set back by {name} {at}"] = lambda m, s=shift_s, k=share: clock_is_set(m, s, k)
            found[f"clock set forward by {name} {at}"] = lambda m, s=shift_s, k=share: clock_is_set(m, -s, k)
        found[f"clock set back by {name} during a run"] = lambda m, s=shift_s: clock_is_set_during(m, -s, 0.5)
        found[f"clock set forward by {name} during a run"] = lambda m, s=shift_s: clock_is_set_during(m, s, 0.5)
    names = {
        "spaces": "a folder of mine ",
        "a line end": "two\nlines",
        "signs": "ünï'\"\\ $(x) ;&*[1]",
        "a dash": "-rf",
    }
    for about, name in names.items():
        found[f"path with {about}"] = lambda m, n=name: path_is(m, n)
    found["path that is relative"] = path_is_relative
    found["path that is a link to another file system"] = lambda m: folder_is_a_link(m, other)
    for files in (1, 4, 8, 16):
        found[f"{files} more open files"] = lambda m, n=files: few_files(m, n)
    for after_s in (0.0, 0.7):
        found[f"two at once, {after_s} s apart"] = lambda m, s=after_s: two_at_once(m, s)
    if may_mount():
        for size_kb in (8, *range(264, 440, 8)):
            found[f"full disk of {size_kb} KB"] = lambda m, n=size_kb: full_disk(m, n, other / "mount")
    return found


def main() -> int:
    """Carry them out; 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--command", default="run", choices=["run", "study"])
    parser.add_argument("--only", default="", help="A pattern: what the name has.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object for each.")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    shim.start_again()
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        home = Path(temporary).resolve()
        command = commands.named(given.command, home)
        commands.warm_up(command, home)
        machine = Machine(command, home)
        bad = 0
        for name, attack in attacks(Path(other)).items():
            if not re.search(given.only, name):
                continue
            try:
                wrong = attack(machine)
            except OSError as error:
                wrong = [f"{errno.errorcode.get(error.errno or 0)}: {error}"]
            bad += bool(wrong)
            told = "\n    ".join(["equal and clean" if not wrong else "", *wrong[:6]])
            print(json.dumps({"attack": name, "wrong": wrong}) if given.json else f"{name}: {told}", flush=True)
            for folder in ("clock", "paths", "relative", "few", "two"):
                shutil.rmtree(home / folder, ignore_errors=True)
            (home / "link").unlink(missing_ok=True)
            for folder in Path(other).iterdir():
                shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
