"""Publishes a site on a branch of a git remote, without touching a work tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError

BOARD = "board"  # the board's folder inside a site of documentation
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]*", re.ASCII)


def publish(site: Path, to: str, branch: str = "gh-pages", docs: Path | None = None) -> str:
    """Publish a site.

    Args:
        site: A folder that `leaderboard build` wrote.
        to: Name or address of a git remote.
        branch: Branch of the remote. It gets one more commit, which contains only the site.
        docs: A folder with the documentation as a site. It is published together with the board, which goes into its
            folder `BOARD`, in one commit; a board that it already contains is replaced.

    Returns:
        What was done, in one sentence.

    Raises:
        UsageError: A folder is not a site, or a name cannot be one of a remote or branch.
        EnvironmentProblem: git is missing or failed.
    """
    for folder, command in ((site, "adaptive-bench leaderboard build"), (docs, "make docs")):
        if folder is not None and not (folder / "index.html").is_file():
            raise UsageError(f"A site has an index.html, but {str(folder)!r} has none. `{command}` writes one.")
    # What begins with a hyphen would be an option of git.
    if to.startswith("-") or not _BRANCH.fullmatch(branch) or ".." in branch:
        raise UsageError(f"A site is published on a branch of a git remote, got {branch!r} of {to!r}.")
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "site"
        if docs is not None:
            # Only at the top: a page of the documentation may be called `board` too.
            shutil.copytree(docs, whole, ignore=lambda at, _: [BOARD] if Path(at) == docs else [])
        shutil.copytree(site, whole if docs is None else whole / BOARD)
        (whole / ".nojekyll").touch()  # GitHub shows the files as they are
        return _commit(whole, to, branch)


def _commit(site: Path, to: str, branch: str) -> str:
    """Commits the site in a temporary repository, on top of the branch, and pushes it without force."""
    # The temporary repository below knows neither the remotes nor the author of the one that we are in.
    address = _git("remote", "get-url", to, on_failure="") or to
    author: dict[str, str] = {}
    for key, name in (("user.name", "NAME"), ("user.email", "EMAIL")):
        author |= dict.fromkeys((f"GIT_AUTHOR_{name}", f"GIT_COMMITTER_{name}"), _git("config", key, on_failure=""))
    if not all(author.values()):
        raise EnvironmentProblem(
            "A commit needs an author, but git knows none. Set `git config user.name` and `git config user.email`."
        )
    with tempfile.TemporaryDirectory() as folder:
        place = {"GIT_DIR": f"{folder}/git", "GIT_INDEX_FILE": f"{folder}/index"}
        _git("init", "--bare", "--quiet", f"{folder}/git")
        parent = []
        # One commit of history is enough for a parent. A new branch has none.
        if _git("ls-remote", "--heads", address, f"refs/heads/{branch}", place=place):
            _git("fetch", "--quiet", "--depth=1", address, f"refs/heads/{branch}", place=place)
            parent = ["-p", _git("rev-parse", "FETCH_HEAD", place=place)]
        work = place | {"GIT_WORK_TREE": str(site)}
        # --force, since the user's global ignore file may match parts of a site.
        _git("add", "--all", "--force", ".", place=work, where=site)
        tree = _git("write-tree", place=work)
        if parent and tree == _git("rev-parse", "FETCH_HEAD^{tree}", place=place):
            return f"The branch {branch} of {to} has this site already"
        commit = _git("commit-tree", *parent, "-m", "Publish the leaderboard", tree, place=place | author)
        # Refused by the remote if somebody has published since the fetch.
        _git("push", "--quiet", address, f"{commit}:refs/heads/{branch}", place=place)
    return f"Committed to the branch {branch} of {to}"


def _git(
    *arguments: str, place: dict[str, str] | None = None, where: Path | None = None, on_failure: str | None = None
) -> str:
    """Runs git with some environment variables and returns what it prints, or `on_failure` if that is given."""
    if shutil.which("git") is None:
        raise EnvironmentProblem("Publishing to a remote needs git, which is not installed.")
    try:
        found = subprocess.run(
            # A password prompt would wait for ever where nobody sees it.
            ["git", *arguments], env=os.environ | {"GIT_TERMINAL_PROMPT": "0"} | (place or {}), cwd=where,
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        if on_failure is not None:
            return on_failure
        said = " ".join(error.stderr.split())
        raise EnvironmentProblem(
            f"git must be able to publish, but `git {arguments[0]}` failed: {said}. Check the remote and your access "
            f"to it."
        ) from error
    return found.stdout.strip()
