"""Publishing to a branch of a real (local) remote, and to a folder."""

import subprocess

import pytest

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.leaderboard.publish import publish

pytestmark = pytest.mark.slow


def git(*arguments, where):
    return subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A work tree with a change that is not committed, and a bare remote named origin."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git("init", "--bare", "--quiet", "remote.git", where=tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    git("init", "--quiet", "--initial-branch=main", where=work)
    for key, value in (("user.name", "A"), ("user.email", "a@example.org")):
        git("config", key, value, where=work)
    git("remote", "add", "origin", str(tmp_path / "remote.git"), where=work)
    (work / "file").write_text("committed")
    git("add", "file", where=work)
    git("commit", "--quiet", "-m", "First", where=work)
    (work / "file").write_text("changed")
    (work / ".gitignore").write_text("*.csv\n")
    (work / "site" / "figures").mkdir(parents=True)
    (work / "site" / "index.html").write_text("one")
    (work / "site" / "board.csv").write_text("data")
    monkeypatch.chdir(work)
    return work


def test_a_branch_gets_the_site_and_nothing_else_and_the_work_tree_stays(work, tmp_path):
    before = git("status", "--porcelain=2", "--branch", where=work), git("for-each-ref", where=work)
    assert publish(work / "site", "origin") == "Committed to the branch gh-pages of origin"
    remote = tmp_path / "remote.git"
    files = git("ls-tree", "-r", "--name-only", "gh-pages", where=remote).splitlines()
    assert files == [".nojekyll", "board.csv", "index.html"]
    assert before == (git("status", "--porcelain=2", "--branch", where=work), git("for-each-ref", where=work))


def test_a_second_site_is_a_second_commit_and_an_equal_one_is_none(work, tmp_path):
    publish(work / "site", "origin")
    assert "already" in publish(work / "site", "origin")
    (work / "site" / "index.html").write_text("two")
    (work / "site" / "board.csv").unlink()
    publish(work / "site", "origin")
    remote = tmp_path / "remote.git"
    assert git("rev-list", "--count", "gh-pages", where=remote) == "2"
    assert git("show", "gh-pages:index.html", where=remote) == "two"
    assert "board.csv" not in git("ls-tree", "-r", "--name-only", "gh-pages", where=remote)


@pytest.mark.parametrize("to", ["orgin", "upstream/site", "../remte.git", "https:/example.invalid/a/b"])
def test_what_is_no_remote_becomes_none(work, monkeypatch, to):
    monkeypatch.setenv("GIT_SSH_COMMAND", "false")
    before = sorted(work.parent.rglob("*"))
    with pytest.raises(EnvironmentProblem, match="ls-remote"):
        publish(work / "site", to)
    assert sorted(work.parent.rglob("*")) == before


@pytest.mark.parametrize(("to", "branch"), [("--upload-pack=x", "gh-pages"), ("origin", "-f"), ("origin", "a..b")])
def test_nothing_of_a_name_becomes_an_option(work, to, branch):
    with pytest.raises(UsageError):
        publish(work / "site", to, branch)


def test_what_git_refuses_is_said(work, tmp_path):
    git("remote", "set-url", "origin", str(tmp_path / "gone.git"), where=work)
    with pytest.raises(EnvironmentProblem, match="ls-remote"):
        publish(work / "site", "origin")
    with pytest.raises(UsageError, match=r"index\.html"):
        publish(work, "origin")


def test_without_an_author_it_says_what_to_set(work):
    git("config", "--unset", "user.email", where=work)
    with pytest.raises(EnvironmentProblem, match=r"user\.email"):
        publish(work / "site", "origin")


def test_documentation_and_board_are_one_commit(work, tmp_path):
    docs = tmp_path / "docs"
    (docs / "methods").mkdir(parents=True)
    (docs / "board").mkdir()
    (docs / "index.html").write_text("docs")
    (docs / "methods" / "index.html").write_text("methods")
    (docs / "board" / "old.html").write_text("of an earlier build")
    publish(work / "site", "origin", docs=docs)
    remote = tmp_path / "remote.git"
    files = git("ls-tree", "-r", "--name-only", "gh-pages", where=remote).splitlines()
    assert files == [".nojekyll", "board/board.csv", "board/index.html", "index.html", "methods/index.html"]
    assert git("show", "gh-pages:board/index.html", where=remote) == "one"
    with pytest.raises(UsageError, match="make docs"):
        publish(work / "site", "origin", docs=work / "site" / "figures")
