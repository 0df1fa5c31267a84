"""Finds the backbone a run asks for: a registered model, a folder in Hugging Face layout, or a hub id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.runs.keys import files_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What decides how a model computes and reads text; a README beside it does not.
_WEIGHT_FILES, _OTHER_FILES = ("*.safetensors",), ("*.json", "*.model", "*.txt", "*.jinja")


@dataclass(frozen=True)
class BackboneSource:
    """Where a backbone comes from.

    Attributes:
        name: As the user wrote it.
        location: Folder, or hub id.
        revision: Commit of the hub id, `None` for a folder.
        fingerprint: Digest of the files of a folder, or hub id and commit.
        weight_bytes: Size of the weights; `None` for a hub id, which is not downloaded to be weighed.
    """

    name: str
    location: str
    revision: str | None
    fingerprint: str
    weight_bytes: int | None

    def load_model(self) -> PreTrainedModel:
        """The model in fp32 on the CPU."""
        from transformers import AutoModelForCausalLM

        return self._load(AutoModelForCausalLM, dtype=torch.float32, use_safetensors=True)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, as the model's folder defines it."""
        from transformers import AutoTokenizer

        return self._load(AutoTokenizer)

    def _load(self, loader: Any, **options: Any) -> Any:
        try:
            return loader.from_pretrained(self.location, revision=self.revision or "main", **options)
        except (OSError, ValueError, ImportError) as error:
            raise EnvironmentProblem(_unreachable(self.name, error)) from error


@lru_cache(maxsize=4)
def find_backbone(name: str) -> BackboneSource:
    """Locate a model without loading it.

    Raises:
        EnvironmentProblem: Neither a registered name nor a folder nor a hub id that can be reached or is in the cache.
    """
    if name in registry.names("models"):
        return _from_folder(name, Path(registry.get("models", name)()))
    if Path(name).expanduser().is_dir():
        return _from_folder(name, Path(name).expanduser().resolve())
    if "/" not in name.strip("/") or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise EnvironmentProblem(
            f"A model is a registered name, a folder in Hugging Face layout, or a hub id like owner/name, "
            f"got {name!r}, which is no folder. {registry.did_you_mean(name, registry.names('models'))}"
        )
    return _from_hub(name)


def _from_folder(name: str, folder: Path) -> BackboneSource:
    if not (folder / "config.json").is_file():
        raise EnvironmentProblem(
            f"A model folder holds config.json, *.safetensors and a tokenizer, but there is no config.json in "
            f"{str(folder)!r}. Set --model to another folder."
        )
    if not any(folder.glob("*.safetensors")):
        raise EnvironmentProblem(
            f"Weights are read from *.safetensors only, but there are none in {str(folder)!r}. Convert the "
            f"weights with save_pretrained, or set --model to another folder."
        )
    files = [file for pattern in (*_WEIGHT_FILES, *_OTHER_FILES) for file in folder.glob(pattern)]
    weight_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return BackboneSource(name, str(folder), None, files_fingerprint(files), weight_bytes)


def _from_hub(name: str) -> BackboneSource:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        config = Path(hf_hub_download(name, "config.json"))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        raise EnvironmentProblem(_unreachable(name, error)) from error
    # The cache keeps files at snapshots/<commit>/config.json.
    revision = config.parent.name
    return BackboneSource(name, name, revision, f"{name}@{revision}", None)


def _unreachable(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split()).split(". ")[0][:300]
    return (
        f"The model {name!r} must be in the hub's cache, on the hub, or in a folder, but it cannot be loaded: "
        f"{reason}. Set --model to a folder in Hugging Face layout, or connect to the hub (HF_HUB_OFFLINE unset, "
        f"HF_TOKEN for gated models)."
    )


def find_device(name: str) -> torch.device:
    """The torch device behind `auto`, `cpu`, `cuda:0`, ...

    Raises:
        UsageError: No such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"A device is auto, cpu, cuda or cuda:<number>, got {name!r}: {reason}. Set --device."
        ) from error
    return device
