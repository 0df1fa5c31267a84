"""Whether the tensors in a model's files are those that its config.json asks for."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from adaptive_bench.errors import EnvironmentProblem, one_line
from adaptive_bench.runs.planning.model_folder import loaded_files

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WRAPPERS = {"module.": "DataParallel and DistributedDataParallel do", "_orig_mod.": "torch.compile does"}
_OF_A_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def check_heads(name: str, folder: Path, empty: PreTrainedModel) -> list[str]:
    """Compare names and shapes in the heads of a folder's weight files with the model; no values are read.

    Args:
        name: The model's, as the user wrote it.
        empty: The model that config.json describes, without values.

    Returns:
        Names of tensors that it leaves aside, see `check_loaded`.

    Raises:
        EnvironmentProblem: See `check_loaded`; or the weights are in no file that transformers reads.
    """
    given: dict[str, list[int]] = {}
    for file in loaded_files(folder, getattr(empty.config, "transformers_weights", None)):
        with safe_open(file, "pt") as tensors:
            given |= {key: tensors.get_slice(key).get_shape() for key in tensors.keys()}  # noqa: SIM118 - no mapping
    # transformers decides what fits: it knows of tied weights, of names that earlier versions wrote, and of
    # checkpoints without the prefix of the decoder.
    loader: Any = type(empty)
    _, found = loader.from_pretrained(
        None,
        config=copy.deepcopy(empty.config),
        state_dict={key: torch.empty(shape, device="meta") for key, shape in given.items()},
        dtype=torch.float32,
        device_map="meta",
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    return check_loaded(name, empty, found)


def check_loaded(name: str, model: PreTrainedModel, found: Mapping[str, Any]) -> list[str]:
    """Refuse a model whose files hold other tensors than it has.

    Args:
        name: The model's, as the user wrote it.
        found: What transformers says of loading it.

    Returns:
        Names of tensors that stand beside the decoder and its head: those of a classifier (`score`), a value head or an
        image tower. A language model of text computes the same without them.

    Raises:
        EnvironmentProblem: Tensors are missing, have other shapes, or are parts of the decoder that it does not have.
    """
    missing, unused = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    if missing and (prefix := _common_prefix(unused, missing)) is not None:
        as_whom = f", as {_WRAPPERS[prefix]}" if prefix in _WRAPPERS else ""
        raise EnvironmentProblem(
            f"The weights of a model have the names that its config.json asks for, but those of {name!r} all begin "
            f"with {prefix!r} (the first: {unused[0]}){as_whom}. Save the model that is inside the other one, or "
            f"rename the tensors without {prefix!r}."
        )
    if missing:
        raise EnvironmentProblem(
            f"The weights of a model have every tensor that its config.json asks for, but those of {name!r} "
            f"lack {len(missing)} (the first: {missing[0]}). Copy or save the model again."
        )
    for tensor, got, asked in sorted(found["mismatched_keys"]):
        raise EnvironmentProblem(
            f"The weights of a model have the shapes that its config.json asks for, but {tensor} of {name!r} has "
            f"{list(got)} in place of {list(asked)}. Correct config.json, or copy or save the model again."
        )
    _check_whole(name, model, unused)
    return unused


def _check_whole(name: str, model: PreTrainedModel, unused: Collection[str]) -> None:
    """Refuse tensors of the decoder that are left aside: with them the model computes something else. Layers behind the
    last one make a model that is cut short look like the whole one; others are biases that config.json denies, say,
    norms of another family, or adapters that nobody merged.
    """
    decoder = getattr(model, model.base_model_prefix, model)
    # A checkpoint of the decoder alone has its names without the prefix.
    parts = {part for module in (model, decoder) for part, _ in module.named_children()}
    inside = [key for key in unused if key.partition(".")[0] in parts]
    layers = int(model.config.num_hidden_layers)
    numbers = {key: int(layer[1]) for key in inside if (layer := _OF_A_LAYER.search(key)) is not None}
    if behind := {key: number for key, number in numbers.items() if number >= layers}:
        raise EnvironmentProblem(
            f"A model is measured with all of its layers, but the config.json of {name!r} says num_hidden_layers "
            f"{layers} and its weights go on to layer {max(behind.values())}, counted from 0 ({next(iter(behind))}). "
            f"Correct num_hidden_layers, or save the shortened model with save_pretrained, which leaves the others out."
        )
    if inside:
        raise EnvironmentProblem(
            f"The weights of a decoder are all used, but a {type(model).__name__} with the config.json of {name!r} has "
            f"no place for {len(inside)} of them (the first: {one_line(inside[0], 200)}). Correct config.json, merge "
            f"adapters into the weights, or save the model again without what does not belong to it."
        )


def _common_prefix(names: Collection[str], missing: Collection[str]) -> str | None:
    """What all names begin with and what is missing does not, if it is that alone that sets them apart."""
    prefixes = {name.removesuffix(lacked) for name in names for lacked in missing if name.endswith(f".{lacked}")}
    return next((prefix for prefix in prefixes if all(name.startswith(prefix) for name in names)), None)
