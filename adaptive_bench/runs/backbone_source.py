"""Finds the backbone a run asks for: a registered model, a folder in Hugging Face layout, a GGUF file, or a hub id."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench import error_origin, registry
from adaptive_bench.error_origin import explained
from adaptive_bench.errors import EnvironmentProblem, PluginFault, message_of, one_line
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache
from adaptive_bench.model.hardware import find_device as find_device
from adaptive_bench.model.hub_models import is_hub_id
from adaptive_bench.runs.model_files import (
    AGAIN,
    SUFFIX,
    alone,
    as_plain,
    check_config,
    check_folder,
    check_loaded,
    files_of,
    read_header,
)
from adaptive_bench.store.keys import files_fingerprint
from adaptive_bench.training.micro_batches import ran_out_of_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class BackboneSource:
    """Where a backbone comes from.

    Attributes:
        name: The name the user wrote.
        location: Folder, GGUF file, or hub id.
        revision: Commit of the hub id; `None` for a folder or a file.
        fingerprint: Digest of the folder's files or of the GGUF file; for a hub id, the id and its commit.
        weight_bytes: Size of the weights (of a GGUF file, once they are in fp32); `None` for a hub id, which is not
            downloaded to learn its size.
        forms: Quantization types of the weights in a GGUF file; `None` for any other model.
    """

    name: str
    location: str
    revision: str | None
    fingerprint: str
    weight_bytes: int | None
    forms: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the model's files are on this machine, outside the hub's cache."""
        return self.revision is None

    def load_model(self) -> PreTrainedModel:
        """The model in fp32 on the CPU."""
        return self._load_weights("cpu")[0]

    def unused_tensors(self) -> list[str]:
        """Names of tensors in a model's folder that the model does not use; no values are read."""
        return self._load_weights("meta")[1]

    def _load_weights(self, device: str) -> tuple[PreTrainedModel, list[str]]:
        from transformers import AutoModelForCausalLM

        options: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
        options |= {} if self.forms is not None else {"use_safetensors": True}
        options |= {} if device == "cpu" else {"device_map": device}
        # Mismatched shapes are accepted here because `check_loaded` refuses them with the tensor's name.
        model, found = self.load(AutoModelForCausalLM, "weights", ignore_mismatched_sizes=True, **options)
        as_plain(model)
        return model, check_loaded(self.name, model, found)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, as the model's folder defines it."""
        from transformers import AutoTokenizer

        return self.load(AutoTokenizer, "tokenizer")

    def load(self, loader: Any, part: str, **options: Any) -> Any:
        """Load the files with an auto class of transformers; `part` says what is read, for messages."""
        whole = {"pretrained_model_name_or_path": self.location, "revision": self.revision or "main"}
        try:
            with (
                nullcontext() if self.is_local else hub_or_cache(Needed("model", self.name)),
                nullcontext(whole) if self.forms is None else alone(Path(self.location)) as place,
            ):
                return loader.from_pretrained(**place, trust_remote_code=False, **options)
        except OutOfReach:
            raise
        except Exception as error:  # reading a user's files may raise anything
            if isinstance(error, MemoryError) or ran_out_of_memory(error):
                raise
            if not self.is_local:
                raise EnvironmentProblem(_unreachable(self.name, error)) from error
            where = "folder" if self.forms is None else "file"
            raise EnvironmentProblem(
                f"The {part} in the model {where} {self.location!r} cannot be read: {type(error).__name__}: "
                f"{message_of(error)[:300]}. {AGAIN}"
            ) from error


def find_backbone(name: str | Path) -> BackboneSource:
    """Locate a model without loading it.

    Raises:
        EnvironmentProblem: The name is not a registered model, a model folder or a GGUF file, nor a hub id that can be
            reached or is in the cache.
    """
    name = str(name)  # kept as the user wrote it: `./nano` is a folder, `nano` a registered model
    place = Path(name).expanduser()
    if name in registry.names("models") or place.is_dir():
        folder = _registered(name) if name in registry.names("models") else place.resolve()
        check_folder(folder)
        weight_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return BackboneSource(name, str(folder), None, files_fingerprint(files_of(folder)), weight_bytes)
    if place.is_file() and place.suffix.lower() == SUFFIX:
        return _from_gguf(name, place.absolute(), files_fingerprint([place]))
    if place.exists() or not is_hub_id(name):
        kind = "a file; name its folder" if place.exists() else "no folder"
        raise EnvironmentProblem(
            f"A model is a registered name, a folder in Hugging Face layout, a GGUF file, or a hub id like owner/name, "
            f"got {name!r}, which is {kind}. {registry.did_you_mean(name, registry.names('models'))}"
        )
    return _from_hub(name)


@lru_cache(maxsize=4)
def empty_model(source: BackboneSource) -> PreTrainedModel:
    """The model with tensors that have shapes but no values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = source.load(AutoConfig, "description (config.json)")
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # transformers may raise anything for a user's config.json
        if isinstance(error, MemoryError) or ran_out_of_memory(error) or error_origin.place(error) is not None:
            raise explained(error) from error
        raise EnvironmentProblem(
            f"A config.json describes a model that transformers can build, but that of {source.name!r} does not: "
            f"{type(error).__name__}: {message_of(error)[:300]}. Correct the file, or name another model."
        ) from error
    return model


def planned_backbone(name: str, fingerprint: str) -> BackboneSource:
    """Locate the model that some work was planned with."""
    found = find_backbone(name)
    if found.fingerprint != fingerprint:
        raise EnvironmentProblem(
            f"A run measures the weights and tokenizer it was planned with, but files in {found.location!r} have "
            f"changed since (planned {fingerprint[-8:]}, now {found.fingerprint[-8:]}). Restore them, or give the same "
            f"command again to plan with the present files."
        )
    return found


def _registered(name: str) -> Path:
    folder = registry.get("models", name)()
    if not isinstance(folder, str | Path) or not Path(folder).is_dir():
        raise PluginFault(
            f"A registered model is a function without arguments that returns the path of a folder, got "
            f"{one_line(repr(folder), 100)} from {name!r} ({registry.origin('models', name)}). Correct the plugin."
        )
    return Path(folder)


@lru_cache(maxsize=4)  # safe because the fingerprint is an argument: changed files make another entry
def _from_gguf(name: str, file: Path, fingerprint: str) -> BackboneSource:
    values, forms = read_header(file)
    return BackboneSource(name, str(file), None, fingerprint, 4 * values, forms)


@lru_cache(maxsize=4)
def _from_hub(name: str) -> BackboneSource:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        with hub_or_cache(Needed("model", name)):
            config = Path(hf_hub_download(name, "config.json"))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        raise EnvironmentProblem(_unreachable(name, error)) from error
    check_config(config, name)
    # The cache keeps files at snapshots/<commit>/config.json.
    revision = config.parent.name
    return BackboneSource(name, name, revision, f"{name}@{revision}", None)


def _unreachable(name: str, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError) or "gated repo" in str(error):
        return (
            f"The model {name!r} is gated: accept its terms on its page and set HF_TOKEN to a token of your account, "
            f"or name a folder in Hugging Face layout."
        )
    reason = message_of(error).split(". ")[0][:300]
    return (
        f"The model {name!r} cannot be loaded from the hub or its cache: {reason}. Name a folder in Hugging Face "
        f"layout, or another hub id (HF_TOKEN gives access to private models)."
    )
