"""What a pull request with an entry gets: ranks beside those of before, a strict build and a comment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_runs import run_config

from adaptive_bench.leaderboard.boards import groups_of, read_board
from adaptive_bench.leaderboard.list_text import headline, short
from adaptive_bench.leaderboard.markdown import MARKER, ranks
from adaptive_bench.leaderboard.plain import markdown
from adaptive_bench.leaderboard.standing import preferred, standings
from adaptive_bench.leaderboard.submission import submit
from adaptive_bench.runs import run

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]
BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def entries(model_folder, tmp_path_factory):
    """Of two people, who measured on the same model with the same recipe: each has its method and the dense model."""
    found = []
    for author, method in (("A. Name", "random_skip"), ("B. Name", "gateskip")):
        home = tmp_path_factory.mktemp("run")
        folder = run(run_config(model_folder, home / "out", ("dense", method), seeds=(1, 2))).folder
        found.append(submit(folder, home / "entries", about={"authors": [author], "licence": "MIT"}))
    return found


def tables(*entries):
    return [entry / "table.json" for entry in entries]


def forged(entry, place):
    """A copy that does not parse."""
    entry = shutil.copytree(entry, place)
    about = yaml.safe_load((entry / "about.yaml").read_text())
    (entry / "about.yaml").write_text(yaml.safe_dump(about | {"status": "proven"}))
    return entry


def test_a_second_person_s_entry_joins_the_board_and_moves_no_number_of_the_first(entries):
    first, both = read_board(tables(entries[0])), read_board(tables(*entries))
    assert not both.refused and len(groups_of(both)) == 1 == len(groups_of(first))
    # Dense once: both measured the same.
    assert {row.label for row in both.rows} == {"dense", "random_skip", "gateskip"}

    def values(board, label):
        return {
            (row.axis, row.phase, row.task, row.metric, row.level): (row.score, row.low, row.high, row.saved)
            for row in board.rows
            if row.label == label
        }

    for label in ("dense", "random_skip"):
        assert values(both, label) == values(first, label)
    assert values(both, "gateskip") == values(read_board(tables(entries[1])), "gateskip")
    assert sorted(one.about.authors for one in both.entries.values()) == [["A. Name"], ["B. Name"]]


def test_the_ranks_stand_beside_those_of_before(entries):
    text = ranks(tables(*entries), tables(entries[0]))
    assert text.startswith(MARKER)
    lines = {line.split("|")[3].strip(): line.split("|") for line in text.splitlines() if line.startswith("| ")}
    assert lines["gateskip"][1].strip() == "new" and lines["random\\_skip"][1].strip() != "new"
    assert "No list changes." in ranks(tables(*entries), tables(*entries))
    assert "before" not in ranks(tables(*entries)).partition("\n\n### ")[2]
    (group,) = groups_of(read_board(tables(*entries)))
    now = preferred(standings(group.board))
    assert markdown(headline(now)) in text
    for line, texts in zip(now.lines, short(now, now.lines)[1], strict=True):
        assert [one.strip() for one in lines[markdown(line.label)][2:-1]] == [markdown(one) for one in texts]


def test_what_is_refused_comes_first(entries, tmp_path):
    text = ranks(tables(entries[0], forged(entries[1], tmp_path / "forged")), tables(entries[0]))
    assert "**Refused: 1.**" in text and "forged is left out" in text and "about.yaml: status" in text
    assert "proven" in text and text.index("Refused") < text.index("No list changes")


@pytest.fixture
def clone(entries, tmp_path):
    """A repository with the entry of one person, as its script sees it."""
    if BASH is None or shutil.which("git") is None:
        pytest.skip("needs git and bash")
    place = tmp_path / "clone"
    (place / ".ci").mkdir(parents=True)
    shutil.copy(HOME / ".ci" / "board", place / ".ci")
    shutil.copytree(entries[0], place / "leaderboard" / "entries" / "first")
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "add", "--all")
    git(place, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "First")
    return place


def git(place, *arguments):
    subprocess.run(["git", *arguments], cwd=place, check=True)


def script(place, *arguments, path=""):
    tools = f"{path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": tools, "BOARD_ALONE": "1"}
    return subprocess.run([BASH, *arguments], cwd=place, env=environment, capture_output=True, text=True)


def test_the_script_of_the_workflow_builds_the_board_and_says_the_ranks(clone, entries):
    shutil.copytree(entries[1], clone / "leaderboard" / "entries" / "second")
    done = script(clone, ".ci/board", "preview", "HEAD")
    assert done.returncode == 0, done.stderr
    assert (clone / "preview" / "board" / "index.html").is_file()
    assert "gateskip" in (clone / "preview" / "ranks.md").read_text()


def test_the_script_fails_on_a_forged_entry_and_the_comment_names_file_and_value(clone, entries):
    forged(entries[1], clone / "leaderboard" / "entries" / "forged")
    done = script(clone, ".ci/board", "preview", "HEAD")
    assert done.returncode != 0 and "forged is left out" in done.stderr
    assert "about.yaml: status" in (clone / "preview" / "ranks.md").read_text()


def test_a_comment_takes_the_place_of_the_one_before(tmp_path):
    if BASH is None:
        pytest.skip("needs bash")
    tools = tmp_path / "bin"
    tools.mkdir()
    lines = (
        "#!/bin/sh",
        'echo "$@" >>"$CALLS"',
        'case "$*" in *--paginate*) cat "$BEFORE";; *) cat "${6#body=@}" >"$BODY";; esac',
    )
    (tools / "gh").write_text("\n".join(lines) + "\n")
    (tools / "gh").chmod(0o755)
    before, body = tmp_path / "before", tmp_path / "body"
    before.write_text("")
    (tmp_path / "ranks.md").write_text(f"{MARKER}\n## The board\n" + "x" * 70_000)
    calls = tmp_path / "calls"
    environment = os.environ | {"GH_REPO": "a/b", "CALLS": str(calls), "BEFORE": str(before), "BODY": str(body)}
    environment["PATH"] = f"{tools}:{os.environ['PATH']}"

    def comment(file, number):
        command = [BASH, str(HOME / ".ci" / "comment"), str(file), number]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    assert comment(tmp_path / "ranks.md", "12").returncode == 0
    assert "--method POST repos/a/b/issues/12/comments" in calls.read_text()
    assert len(body.read_bytes()) == 60_000 and body.read_text().startswith(MARKER)
    before.write_text("77\n")
    assert comment(tmp_path / "ranks.md", "12").returncode == 0
    assert "--method PATCH repos/a/b/issues/comments/77" in calls.read_text()
    (tmp_path / "other.md").write_text("@everyone")
    (tmp_path / "link.md").symlink_to(tmp_path / "ranks.md")
    for file, number in (("other.md", "12"), ("link.md", "12"), ("ranks.md", "12; rm -rf /"), ("gone.md", "1")):
        assert comment(tmp_path / file, number).returncode == 2


def test_workflows_call_what_is_there_and_put_no_text_of_others_into_a_shell():
    for file in (HOME / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"]
        steps = [step for job in jobs.values() for step in job["steps"] if "run" in step]
        assert steps or file.name == "deploy.yml"
        for step in steps:
            assert "${{" not in step["run"]  # values come through the environment, where they are no code
            for named in re.findall(r"(?<![\w/])\.ci/\w+", step["run"]):
                assert os.access(HOME / named, os.X_OK)
