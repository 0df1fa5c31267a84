"""Results outlive the code: comments, renamings and moved files leave all that reads and verifies them working, and a
line that moves numbers is caught.

All of it takes place in a copy of the package that is edited on disk, with commands in processes of their own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_bench

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
RUN = (
    "run --no-controls --methods dense,gateskip --tasks nano_qa_ll --limit 4 --seeds 1 --levels 0,0.2 --train-steps 2 "
    "--jobs 1 --out out --set evaluation.calibration_examples=8"
)


class Copy:
    """A copy of the package, and what was computed with it.

    Attributes:
        code: The folder that the copy is in.
        home: Where its commands are given.
    """

    def __init__(self, folder: Path):
        self.code, self.home = folder / "code", folder / "home"
        self.home.mkdir(parents=True)
        for place in adaptive_bench.__path__:
            shutil.copytree(place, self.code / "adaptive_bench", ignore=shutil.ignore_patterns("__pycache__"))
        tops = ("methods", "tasks", "leaderboard", "configs")  # which lie beside it in a checkout
        for name in tops:
            above = Path(adaptive_bench.__file__).parents[1] / name
            if not (self.code / "adaptive_bench" / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "entries")
                shutil.copytree(above, self.code / "adaptive_bench" / name, ignore=ignored)

    def python(self, *arguments: str) -> subprocess.CompletedProcess:
        # Files are edited within one second of each other, which is all that times in compiled ones tell apart.
        environment = os.environ | {"PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=self.home)

    def says(self, *arguments: str) -> str:
        """What a command of the copy prints."""
        done = self.python("-m", "adaptive_bench", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def all_records(self) -> list[Path]:
        return sorted((self.home / "out" / "records").glob("*/eval/*"))

    def edit(self, file: str, pattern: str, text: str) -> None:
        path = self.code / "adaptive_bench" / file
        before = path.read_text()
        after = re.sub(pattern, text, before, flags=re.MULTILINE)
        assert after != before, f"Nothing like {pattern!r} is in {file} any more: choose another line."
        path.write_text(after)

    def everywhere(self, pattern: str, text: str) -> None:
        for path in (self.code / "adaptive_bench").rglob("*.py"):
            before = path.read_text()
            if (after := re.sub(pattern, text, before)) != before:
                path.write_text(after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    copy = Copy(tmp_path_factory.mktemp("edited"))
    home = copy.python("-c", "import adaptive_bench, adaptive_bench.methods as m; print(m.__file__)").stdout
    assert str(copy.code) in home
    copy.says(*RUN.split())
    (copy.folder,) = (copy.home / "out" / "runs").iterdir()
    copy.table = (copy.folder / "table.json").read_text()
    copy.records = copy.all_records()
    copy.says("leaderboard", "submit", str(copy.folder), "-o", "entries", "--authors", "A. Name", "--licence", "MIT")
    (copy.entry,) = (copy.home / "entries").iterdir()
    return copy


def test_comments_renamings_and_moves_change_nothing(copy):
    copy.edit("training/memory.py", r"\Z", "\n# A comment.\n")
    copy.edit("engine/executors.py", r'\A"""', '"""Other words: ')
    copy.everywhere(r"\badd_update\b", "add_the_update")
    order = copy.code / "adaptive_bench" / "training" / "order.py"
    order.rename(order.with_name("order_of_data.py"))
    copy.everywhere(r"training\.order\b", "training.order_of_data")
    run = str(copy.folder)
    copy.says("run", "--config", f"{run}/config.yaml", "--table-only")
    assert json.loads((copy.folder / "table.json").read_text()) == json.loads(copy.table)
    for command in ("samples", "show", "export"):
        copy.says(command, run)
    copy.says("diff", run, run)
    copy.says("status", "--out", "out", "--all")
    assert "gateskip" in copy.says("leaderboard", "verify", str(copy.entry))
    copy.says(*RUN.split())
    assert copy.all_records() == copy.records
    assert json.loads((copy.folder / "table.json").read_text()) == json.loads(copy.table)


def test_a_line_that_moves_numbers_is_caught_by_golden_outputs(copy):
    copy.edit("engine/executors.py", r"return hidden \+ update$", "return hidden + 1.1 * update")
    golden = copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "gateskip", str(GOLDEN))
    assert golden.returncode == 1 and "raise VERSION in its file, or that of a floor below it" in golden.stdout
