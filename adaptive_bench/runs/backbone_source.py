"""Finds and loads the backbone a run asks for: a registered model, a Hugging Face folder, a GGUF file, or a hub id."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from adaptive_bench import registry
from adaptive_bench.errors import EnvironmentProblem, PluginFault, explained, message_of, one_line, plugin_line
from adaptive_bench.hardware import find_device as find_device
from adaptive_bench.hardware import ran_out_of_memory
from adaptive_bench.hub import Needed, OutOfReach, hub_or_cache, is_hub_id
from adaptive_bench.store.keys import files_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Files that decide how a model computes and reads text; others, such as a README, are not part of its fingerprint.
_FILES = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja")
AGAIN = "Copy or save the model again; after a clone with Git LFS call `git lfs pull` in its folder."
SUFFIX = ".gguf"
# GGUF settings that change what a model computes but that transformers ignores, except for the listed architectures.
_SETTINGS = {
    "rope.scaling.type": (),
    "attention.scale": (),
    "attention.sliding_window": ("gemma2", "gemma3"),
}
_TENSORS = ("rope_freqs.", "rope_factors_")


@dataclass(frozen=True)
class BackboneSource:
    """Where a backbone comes from.

    Attributes:
        weight_bytes: Size of the weights (of a GGUF file, once they are in fp32); `None` for a hub id, which is
            not downloaded to learn its size.
    """

    name: str  # the name the user wrote
    location: str  # folder, GGUF file, or hub id
    revision: str | None  # commit of the hub id; `None` for a folder or a file
    fingerprint: str  # digest of the folder's files or of the GGUF file; for a hub id, the id and its commit
    weight_bytes: int | None
    forms: str | None = None  # quantization types of the weights in a GGUF file; `None` for any other model

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
        # Only safetensors: pickled weights run code when they are read.
        options |= {} if self.forms is not None else {"use_safetensors": True}
        options |= {} if device == "cpu" else {"device_map": device}
        # Mismatched shapes are accepted here because `check_loaded` refuses them with the tensor's name.
        model, found = self.load(AutoModelForCausalLM, "weights", ignore_mismatched_sizes=True, **options)
        if (quantizer := getattr(model, "hf_quantizer", None)) is not None:  # of weights that are dequantized by now
            quantizer.remove_quantization_config(model)
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
        if isinstance(error, MemoryError) or ran_out_of_memory(error) or plugin_line(error) is not None:
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
    return BackboneSource(name, str(file), None, fingerprint, 4 * values, forms)  # 4 bytes of fp32 each


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


def files_of(folder: Path) -> list[Path]:
    """The files in a model's folder that its fingerprint covers."""
    return [file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()]


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not hold a model a run can measure."""
    if not (folder / "config.json").is_file():
        is_adaptive = (folder / "adaptive.json").is_file()
        instead = "the plain model that this saved adaptive model was trained from" if is_adaptive else "another folder"
        raise EnvironmentProblem(
            f"A model folder holds config.json, *.safetensors and a tokenizer, but {str(folder)!r} has no config.json. "
            f"Name {instead}."
        )
    check_config(folder / "config.json", str(folder))
    if (folder / "adapter_config.json").is_file():  # transformers would freeze the model and load adapters onto it
        raise EnvironmentProblem(
            f"A model folder holds a whole model, but by adapter_config.json {str(folder)!r} is an adapter. Remove "
            f"that file if the adapter is merged into the weights already, or merge it and name the merged model."
        )


def check_config(file: Path, model: str) -> None:
    """Refuse the config.json of a model that cannot be measured; `model` is its name as the user wrote it."""
    try:
        config = dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise EnvironmentProblem(
            f"The file {str(file)!r} must describe a model in JSON, but cannot be read: {message_of(error)}. {AGAIN}"
        ) from error
    family, known = config.get("model_type"), registry.names("families")
    if family not in known:
        raise EnvironmentProblem(
            f"A model belongs to one of the families {', '.join(known)}, but {str(file)!r} says model_type {family!r}. "
            f"Name another model, or register the family (see docs/models.md)."
        )
    # Refused even if the weights are plain: this entry makes transformers build quantized maps, which are untrainable.
    if (quantized := config.get("quantization_config")) is not None:
        raise EnvironmentProblem(
            f"A backbone has plain weights, but the config.json of {model!r} has a quantization_config "
            f"({one_line(str(quantized), 100)}). Dequantize the model and save it again, or remove that entry if its "
            f"weights are plain; --quantize quantizes them for evaluation."
        )


def check_loaded(name: str, model: PreTrainedModel, found: Mapping[str, Any]) -> list[str]:
    """Refuse a model whose tensors are not those that its files hold, by the loading info of transformers.

    Returns:
        Names of tensors outside the decoder and its head, such as those of a classifier (`score`), a value head or an
        image tower. A language model of text computes the same without them.

    Raises:
        EnvironmentProblem: Tensors are missing, have other shapes, or belong to a decoder with other parts.
    """
    missing, unused = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    if missing:
        others = f", and have {len(unused)} others (the first: {one_line(unused[0], 200)})" if unused else ""
        raise EnvironmentProblem(
            f"The weights of a model have every tensor that its config.json asks for, but those of {name!r} "
            f"lack {len(missing)} (the first: {missing[0]}){others}. Correct config.json, or copy or save the model "
            f"again."
        )
    for tensor, got, asked in sorted(found["mismatched_keys"]):
        raise EnvironmentProblem(
            f"The weights of a model have the shapes that its config.json asks for, but {tensor} of {name!r} has "
            f"{list(got)} in place of {list(asked)}. Correct config.json, or copy or save the model again."
        )
    decoder = getattr(model, model.base_model_prefix, model)
    # A checkpoint of the decoder alone names its tensors without the prefix.
    parts = {part for module in (model, decoder) for part, _ in module.named_children()}
    # Without such tensors the model computes something else. They are layers that config.json cuts off, biases that it
    # turns off, norms of another family, or adapters that were not merged.
    if inside := [key for key in unused if key.partition(".")[0] in parts]:
        raise EnvironmentProblem(
            f"The weights of a decoder are all used, but a {type(model).__name__} with the config.json of {name!r} "
            f"({model.config.num_hidden_layers} layers) has no place for {len(inside)} of them (the first: "
            f"{one_line(inside[0], 200)}). Correct config.json, merge adapters into the weights, or save the model "
            f"again without what does not belong to it."
        )
    return unused


def read_header(file: Path) -> tuple[int, str]:
    """The number of weights in a GGUF file, and their types, most frequent first, such as `Q4_K, Q6_K, F32`."""
    if importlib.util.find_spec("gguf") is None:
        raise EnvironmentProblem(
            f"Reading the model file {str(file)!r} needs the package gguf, which is not installed. Install it with "
            f"`pip install 'adaptive-bench[gguf]'`, or name a folder in Hugging Face layout."
        )
    from gguf import GGUFReader

    try:
        reader: Any = GGUFReader(file)
        # Fields of several values are skipped: decoding a vocabulary takes long and is not needed here.
        values: dict[str, Any] = {key: one.contents() for key, one in reader.fields.items() if len(one.data) == 1}
        weights: dict[str, int] = {}
        for tensor in reader.tensors:
            form = tensor.tensor_type.name
            weights[form] = weights.get(form, 0) + int(tensor.n_elements)
    except Exception as error:  # reading a user's file may raise anything
        if isinstance(error, MemoryError):
            raise
        raise EnvironmentProblem(
            f"The model file {str(file)!r} cannot be read as GGUF: {type(error).__name__}: {message_of(error)[:300]}. "
            f"Copy it again, or name another model."
        ) from error
    _check_whole(file, values, [tensor.name for tensor in reader.tensors])
    return sum(weights.values()), ", ".join(sorted(weights, key=lambda form: -weights[form]))


def _check_whole(file: Path, values: dict[str, Any], tensors: list[str]) -> None:
    if int(values.get("split.count", 1)) > 1:
        raise EnvironmentProblem(
            f"A model in GGUF is one file, got the first of {values['split.count']} in {str(file)!r}. Join them with "
            f"llama.cpp's llama-gguf-split --merge, or name a folder in Hugging Face layout."
        )
    family = str(values.get("general.architecture"))
    left_out = [
        f"{name} {one_line(repr(values[f'{family}.{name}']), 60)}"
        for name, known in _SETTINGS.items()
        if family not in known and values.get(f"{family}.{name}") not in (None, "none", 0)
    ]
    left_out += [f"the tensor {name}" for name in tensors if name.startswith(_TENSORS)]
    if left_out:
        raise EnvironmentProblem(
            f"transformers reads a GGUF file as its architecture ({family}) without {', '.join(left_out)}, which "
            f"{str(file)!r} asks for: it would be another model. Name the original model in Hugging Face layout."
        )


@contextmanager
def alone(file: Path) -> Iterator[dict[str, str]]:
    """Arguments with which `from_pretrained` reads a GGUF file without the files beside it."""
    with TemporaryDirectory() as folder:
        (Path(folder) / file.name).symlink_to(file)
        yield {"pretrained_model_name_or_path": folder, "gguf_file": file.name}
