"""Every code block of the guides to tasks and launchers runs, in its order, on a tiny model."""

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.cli import main

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
SMALL = ["--limit", "3", "--train-steps", "2"]


def _commands(page):
    blocks = BLOCK.finditer((DOCS / page).read_text(encoding="utf-8"))
    return [line for block in blocks if not block["language"] for line in block["text"].strip().splitlines()]


@pytest.fixture
def written(monkeypatch, tmp_path):
    """`written(page)`: an empty folder with the page's files; what they register is gone after the test."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)

    def write(page):
        blocks = list(BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")))
        assert all(block["file"] or block["language"] in ("", "toml") for block in blocks)
        for block in blocks:
            if block["file"]:
                Path(block["file"]).parent.mkdir(exist_ok=True)
                Path(block["file"]).write_text(block["text"])

    return write


def _give(command, monkeypatch, capsys, *more):
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *more])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert end.value.code in (0, None), printed.out + printed.err
    return printed.out


def test_add_a_task(written, monkeypatch, capsys, model_folder):
    written("add_a_task.md")
    make, listing, dry, real = _commands("add_a_task.md")
    subprocess.run([sys.executable, *shlex.split(make)[1:]], check=True)
    listed = _give(listing, monkeypatch, capsys)
    assert "larger" in listed
    small = ["--model", str(model_folder), *SMALL]
    assert "larger" in _give(dry, monkeypatch, capsys, *small)
    shown = _give(real, monkeypatch, capsys, *small)
    assert "larger" in shown and "random_skip" in shown


def test_no_question_of_the_guide_has_two_uses(written):
    written("add_a_task.md")
    subprocess.run([sys.executable, "larger/make_items.py"], check=True)
    registry.load_plugin(Path("larger.py"))
    from adaptive_bench.evaluation.lookup import find_task, load_task
    from adaptive_bench.task import ExampleRequest

    task = find_task("larger")
    documents = load_task(task, None, None).dataset
    asked = {split: {row["question"] for row in documents[split]} for split in ("test", "validation")}
    taught = [
        {example.prompt.removesuffix(" Answer:") for example in task.training(ExampleRequest(split, 2000, seed=1))}
        for split in ("train", "calibration")
    ]
    uses = [*asked.values(), *taught]
    assert all(uses) and sum(map(len, uses)) == len(set().union(*uses)) == 1200


def test_add_a_launcher(written, monkeypatch, capsys, model_folder):
    written("add_a_launcher.md")
    (command,) = _commands("add_a_launcher.md")
    more = ["--model", str(model_folder), "--tasks", "nano_qa_ll", *SMALL]
    told = _give(command, monkeypatch, capsys, *more)
    (script,) = Path("runs/runs").glob("*/jobs.sh")
    assert f"Run sh {script}" in " ".join(told.split())
    jobs = [shlex.split(line) for line in script.read_text().splitlines()[1:]]
    cells = [words[words.index("--cell") + 1] for words in jobs[:-1]]
    assert len(cells) == len(set(cells)) == 3 and jobs[-1][-1] == "--table-only"  # with the static control
    assert all("scripted.py" in words[words.index("--plugin") + 1] for words in jobs)
    for words in jobs:  # what the script does, in this process
        assert words[:3] == [sys.executable, "-m", "adaptive_bench"]
        _give(shlex.join(words[2:]), monkeypatch, capsys)
    assert "gateskip" in _give(command, monkeypatch, capsys, *more)
    assert script.read_text().count("--cell") == 3  # nothing was left to be written down


def test_submit_in_five_commands(monkeypatch, tmp_path, capsys, model_folder):
    """As documented but for sizes and model; the last one against a bare repository."""
    (block,) = re.findall(r"```sh\n(.*?)```", (DOCS / "submit.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block in (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tutorial = BLOCK.finditer((DOCS / "tutorial_add_a_method.md").read_text(encoding="utf-8"))
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)
    monkeypatch.chdir(tmp_path)
    for name, value in (("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b.org")):
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.replace("AUTHOR", "COMMITTER"), value)
    for line in ("git init -q --bare board.git", "git init -q .", "git remote add origin board.git"):
        subprocess.run(shlex.split(line), check=True)
    Path("coast.py").write_text(next(one["text"] for one in tutorial if one["file"] == "coast.py"))
    about = re.search(r"```yaml\n(.*?)```", (DOCS / "submit.md").read_text(encoding="utf-8"), re.DOTALL)
    Path("about.yaml").write_text(textwrap.dedent(about[1]))
    run, submit, verify, build, push = block.strip().splitlines()
    small = ["--model", str(model_folder), "--any-model", "--tasks", "nano_qa_ll", "--seeds", "1", *SMALL]
    small += ["--levels", "0.1"]
    assert "coast" in _give(run, monkeypatch, capsys, *small)
    (folder,) = Path("runs/runs").iterdir()
    submit, verify, push = (line.replace("RUN", folder.name) for line in (submit, verify, push))
    _give(submit, monkeypatch, capsys)
    assert "coast" in _give(verify, monkeypatch, capsys)
    _give(build, monkeypatch, capsys)
    assert "coast" in Path("site/board.md").read_text(encoding="utf-8")
    subprocess.run(push, shell=True, check=True, capture_output=True)
    listing = ["git", "--git-dir", "board.git", "ls-tree", "-r", "--name-only", "coast"]
    pushed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    assert f"leaderboard/entries/{folder.name}/points.parquet" in pushed
