"""Saved models on the Hugging Face hub: the same folders, uploaded and fetched as they are."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a repository of the hub and of no folder here."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def fetched(name: str, revision: str | None = None) -> Path:
    """The folder of the cache that holds a repository of the hub.

    Raises:
        EnvironmentProblem: There is none, it may not be read, or the hub cannot be asked and the cache has no copy.
    """
    from huggingface_hub import snapshot_download

    try:
        with hub_or_cache(Needed("model", name)):
            return Path(snapshot_download(name, revision=revision))
    except OutOfReach as error:
        if (beside := Path(name).parent).is_dir():  # what looks like an id is rather a path with a mistake in it
            raise EnvironmentProblem(
                f"A saved model is loaded from a folder or by a hub id, got {name!r}: there is no such folder in "
                f"{str(beside)!r}, and as a hub id it cannot be looked up ({error.answer.detail}). Check the path; a "
                f"run's model is loaded with AdaptiveModel.load(run, method)."
            ) from error
        raise
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"{name!r} is no folder here and cannot be loaded from the Hugging Face hub: {message_of(error)[:300]}. "
            f"Check the name; a private model needs HF_TOKEN."
        ) from error


def uploaded(folder: Path, name: str, *, private: bool | None, token: str | None, message: str) -> str:
    """Upload a folder as a repository of the hub, made if need be; returns its address.

    Raises:
        EnvironmentProblem: The hub refuses, or cannot be reached.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=repository.repo_id, commit_message=message)
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"The model cannot be uploaded to {name!r}: {message_of(error)[:300]}. Check the name, and log in with "
            f"`hf auth login` or give token=..."
        ) from error
    return str(repository)


def licence_of(location: str) -> str | None:
    """The licence that the card of pretrained weights names, in their folder or the hub's cache; `None`: none known."""
    from huggingface_hub import try_to_load_from_cache

    readme = Path(location) / "README.md"
    if is_hub_id(location):
        cached = try_to_load_from_cache(location, "README.md")
        readme = Path(cached) if isinstance(cached, str) else readme
    try:
        parts = readme.read_text(encoding="utf-8").split("---\n", 2)
        about = yaml.safe_load(parts[1]) if len(parts) == 3 and not parts[0].strip() else None
    except (OSError, ValueError, yaml.YAMLError):  # none there, or nothing that says so
        return None
    licence = about.get("license") if isinstance(about, dict) else None
    return licence if isinstance(licence, str) else None
