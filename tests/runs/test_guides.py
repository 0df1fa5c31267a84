"""Every code block of the tutorial and of the guides to tasks and launchers runs, in its order, on a tiny model."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from adaptive_bench import registry
from adaptive_bench.cli import main
from adaptive_bench.evaluation.loading import load_task
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.task import ExampleRequest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
SMALL = ["--limit", "3", "--train-steps", "2"]


def _blocks(page):
    return list(BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")))


def _commands(page):
    return [line for block in _blocks(page) if not block["language"] for line in block["text"].strip().splitlines()]


@pytest.fixture(autouse=True)
def _empty_folder(monkeypatch, tmp_path):
    """What is registered in it is gone after the test."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adaptive_bench.cli.options.quiet", lambda: None)


def _write(page):
    """The files of a page; there is no other code on it."""
    for block in _blocks(page):
        assert block["file"] or block["language"] in ("", "toml", "yaml")
        if block["file"]:
            Path(block["file"]).parent.mkdir(exist_ok=True)
            Path(block["file"]).write_text(block["text"])


def _give(command, monkeypatch, capsys, *more):
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *more])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert end.value.code in (0, None), printed.out + printed.err
    return printed.out


def test_add_a_task(monkeypatch, capsys, model_folder):
    """No question of it has two uses."""
    _write("add_a_task.md")
    make, listing, dry, real = _commands("add_a_task.md")
    subprocess.run([sys.executable, *shlex.split(make)[1:]], check=True)
    assert "larger" in _give(listing, monkeypatch, capsys)
    small = ["--model", str(model_folder), *SMALL]
    assert "larger" in _give(dry, monkeypatch, capsys, *small)
    shown = _give(real, monkeypatch, capsys, *small)
    assert "larger" in shown and "random_skip" in shown
    task = find_task("larger")
    documents = load_task(task, None, None).dataset
    uses = [{row["question"] for row in documents[split]} for split in ("test", "validation")]
    for split in ("train", "calibration"):
        examples = task.training(ExampleRequest(split, 2000, seed=1))
        uses.append({example.prompt.removesuffix(" Answer:") for example in examples})
    assert all(uses) and sum(map(len, uses)) == len(set().union(*uses)) == 1200
    _answer_in_words()
    assert "written" in _give(real.replace("larger", "written"), monkeypatch, capsys, *small)
    harness = load_task(find_task("written"), None, None)
    harness.build_all_requests()
    for asked in harness.instances:
        asked.resps = [f" {max(asked.doc['options'])}"]
    harness.apply_filters()
    scores = [harness.process_results(one.doc, [one.filtered_resps["number"]]) for one in harness.instances]
    assert len(scores) == 200 and all(score["exact_match"] for score in scores)


def _answer_in_words():
    """The page's task under another name, in the form of its section on written answers."""
    (form,) = (block["text"] for block in _blocks("add_a_task.md") if block["language"] == "yaml" and not block["file"])
    replaced = r"^(?:output_type|doc_to_choice|doc_to_target|metric_list):.*\n(?:  .*\n)*"
    Path("written").mkdir()
    for file in [Path("larger.py"), *Path("larger").glob("*.*")]:
        text = file.read_text().replace("larger", "written")
        if file.suffix == ".yaml":
            text = re.sub(replaced, "", text, flags=re.MULTILINE) + form
        text = text.replace('"loglikelihood"', '"generative"').replace('"acc,none"', '"exact_match,number"')
        Path(str(file).replace("larger", "written")).write_text(text)


def test_add_a_launcher(monkeypatch, capsys, model_folder):
    _write("add_a_launcher.md")
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


def test_submit_in_five_commands(monkeypatch, capsys, model_folder):
    """As documented but for sizes and model; the last one against a bare repository."""
    block, _ = re.findall(r"```sh\n(.*?)```", (DOCS / "submit.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block in (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name, value in (("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@b.org")):
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.replace("AUTHOR", "COMMITTER"), value)
    for line in ("git init -q --bare board.git", "git init -q .", "git remote add origin board.git"):
        subprocess.run(shlex.split(line), check=True)
    _write("tutorial_add_a_method.md")
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


TUTORIAL = "tutorial_add_a_method.md"
SAYS = {"list": "coast", "check": "specs pass", "run": "coast", "new-method": "Wrote"}


@pytest.mark.parametrize("command", _commands(TUTORIAL))
def test_commands_of_the_tutorial(command, monkeypatch, model_folder, capsys):
    _write(TUTORIAL)
    asked = shlex.split(command)[1]
    small = ["--model", str(model_folder), "--tasks", "nano_qa_ll", *SMALL] if asked == "run" else []
    assert SAYS[asked] in _give(command, monkeypatch, capsys, *small)


def test_the_look_inside(capsys):
    _write(TUTORIAL)
    assert {path.name for path in Path().iterdir()} == {"coast.py", "look.py", "learned_coast.py"}
    runpy.run_path("look.py")
    found = ast.literal_eval(capsys.readouterr().out)
    assert 0.2 < found["tokens"] < 0.4
    assert found["net"] < found["core"] <= found["tokens"]
