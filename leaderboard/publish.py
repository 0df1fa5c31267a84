"""Publishes a site on a branch of a git remote or in a folder, without touching a work tree or foreign files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.store import atomic

INDEX = "board.json"  # lists the data files; a folder that has it is a board's
BOARD = "board"  # the board's folder inside a site of documentation
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]*", re.ASCII)
_DEFAULT = "gh-pages"
_REMOTE = re.compile(r"[\w.\-]+", re.ASCII)  # name of a remote
_ADDRESS = re.compile(r"[^/]*:")  # as git tells an address from a path: a colon before the first slash


def publish(site: Path, to: str, branch: str = _DEFAULT, docs: Path | None = None) -> str:
    """Publish a site.

    Args:
        site: A folder that `leaderboard build` wrote.
        to: Name or address of a git remote, or a folder, which then holds a copy. A new folder is written with a slash
            (`./site`), so that a misspelt remote does not create one.
        branch: Branch of the remote. It gets one more commit, which contains only the site.
        docs: A folder with the documentation as a site. It is published together with the board, which goes into its
            folder `BOARD`, in one commit or copy; a board that it already contains is replaced.

    Returns:
        What was done, in one sentence.

    Raises:
        UsageError: A folder is not a site, or `to` is neither a remote nor a folder.
        EnvironmentProblem: git is missing or failed.
    """
    if not (site / "index.html").is_file():
        raise UsageError(f"`leaderboard build` writes a site with an index.html, but there is none in {str(site)!r}.")
    if docs is not None:
        if not (docs / "index.html").is_file():
            raise UsageError(
                f"--docs is a site of documentation with an index.html, but there is none in {str(docs)!r}. "
                f"`make docs` writes one to build/docs."
            )
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "site"
            shutil.copytree(docs, whole, ignore=lambda at, _: [BOARD] if Path(at) == docs else [])
            shutil.copytree(site, whole / BOARD)
            return publish(whole, to, branch)
    address = _address(to)
    if address is None:
        if branch != _DEFAULT:
            raise UsageError(f"--branch is one of a git remote, got {branch!r} with the folder {to!r}. Leave it out.")
        target = Path(to)
        if target.resolve().is_relative_to(site.resolve()):
            raise UsageError(f"A site is copied to another folder, got {to!r}, which lies inside it.")
        check_place(target, "--to")
        with atomic.writable(target):
            shutil.copytree(site, target, dirs_exist_ok=True)
        return f"Copied to {target}"
    if not _BRANCH.fullmatch(branch) or ".." in branch:
        raise UsageError(f"A branch has a name of letters, digits, '.', '_', '-' and '/', got {branch!r}.")
    return _commit(site, address, to, branch)


def _address(to: str) -> str | None:
    """The address that `to` is or that a remote of this name has; `None` if `to` is a plain folder."""
    if to.startswith("-"):
        raise UsageError(f"--to takes a git remote or a folder, got {to!r}.")
    is_name = _REMOTE.fullmatch(to) is not None
    if is_name and (found := _git("remote", "get-url", to, on_failure="")):
        return found
    folder = Path(to)
    if (folder / "HEAD").is_file() or (folder / ".git").exists():
        return str(folder.resolve())
    if folder.exists():
        return None
    if _ADDRESS.match(to):
        return to
    if is_name or to.endswith(".git") or not folder.parent.is_dir():
        known = ", ".join(_git("remote", on_failure="").split()) or "none"
        raise UsageError(
            f"--to is a git remote (here: {known}), its address, or a folder, got {to!r}, which is none of them. "
            f"Correct it; write a new folder with a slash, such as `./site`, inside a folder that exists."
        )
    return None


def _commit(site: Path, address: str, to: str, branch: str) -> str:
    """Commits the site in a temporary repository, on top of the branch, and pushes it without force."""
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
        exists = bool(_git("ls-remote", "--heads", address, f"refs/heads/{branch}", place=place))
        parent = []
        if exists:
            _git("fetch", "--quiet", "--depth=1", address, f"refs/heads/{branch}", place=place)
            parent = ["-p", _git("rev-parse", "FETCH_HEAD", place=place)]
        copy = Path(folder) / "site"
        shutil.copytree(site, copy)
        (copy / ".nojekyll").touch()  # GitHub shows the files as they are
        work = place | {"GIT_WORK_TREE": str(copy)}
        _git("add", "--all", "--force", ".", place=work, where=copy)
        tree = _git("write-tree", place=work)
        if parent and tree == _git("rev-parse", "FETCH_HEAD^{tree}", place=place):
            return f"The branch {branch} of {to} has this site already"
        commit = _git("commit-tree", *parent, "-m", "Publish the leaderboard", tree, place=place | author)
        _git("push", "--quiet", address, f"{commit}:refs/heads/{branch}", place=place)
    return f"Committed to the branch {branch} of {to}"


def _git(
    *arguments: str, place: dict[str, str] | None = None, where: Path | None = None, on_failure: str | None = None
) -> str:
    """Runs git and returns what it prints.

    Args:
        arguments: Arguments of git.
        place: Environment variables that select the repository.
        where: The folder to work in.
        on_failure: Returned if git fails, instead of raising an error.
    """
    if shutil.which("git") is None:
        raise EnvironmentProblem("Publishing to a remote needs git, which is not installed. Give a folder instead.")
    try:
        found = subprocess.run(
            ["git", *arguments], env=os.environ | {"GIT_TERMINAL_PROMPT": "0"} | (place or {}), cwd=where,
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        if on_failure is not None:
            return on_failure
        said = " ".join(error.stderr.split())
        raise EnvironmentProblem(
            f"git must be able to publish, but `git {arguments[0]}` failed: {said}. Check the remote and your access "
            f"to it, or publish to a folder."
        ) from error
    return found.stdout.strip()


def check_place(folder: Path, option: str) -> None:
    """Refuse a folder in which a board would lie among foreign files.

    A new or empty folder is accepted, and one that holds an earlier board, alone or with its documentation. Hidden
    files are ignored: git and desktops leave them.

    Args:
        folder: The folder to write to.
        option: The option that named the folder, for the message.

    Raises:
        UsageError: The folder holds something else, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} is a folder for the board, but {str(folder)!r} is a file. Name another place.")
    if not folder.is_dir() or any((folder / inner / INDEX).is_file() for inner in ("", BOARD)):
        return
    if foreign := sorted(one.name for one in folder.iterdir() if not one.name.startswith(".")):
        raise UsageError(
            f"{option} is a new or empty folder, or one with an earlier board, but {str(folder)!r} holds something "
            f"else: {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}. Name another folder with {option}."
        )
