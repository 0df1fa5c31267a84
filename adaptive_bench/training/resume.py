"""Saves the state of a training, so that a killed training resumes exactly. Tensors are safetensors, the rest JSON.

A checkpoint is a folder `step-00000050` that appears by one rename; only the newest one is kept.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.store.atomic import new_folder, remove, write_json
from adaptive_bench.training.distributed import like, whole

_WEIGHTS, _OPTIMIZER, _PROGRESS = "weights.safetensors", "optimizer.safetensors", "progress.json"


@dataclass(frozen=True)
class Progress:
    """The progress of a training."""

    step: int  # finished optimizer steps
    accumulation: int  # micro-batches per step
    macs: int  # in all processes
    usable: int | None = None  # the limit on bytes by which micro-batches were cut, if known


def save(
    folder: Path, progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer, *, writes: bool = True
) -> None:
    """Write a checkpoint and remove the older ones; all processes gather shards, and only one of them `writes`."""
    weights = _detached(trainable_state(model))
    states = optimizer.state_dict()["state"]
    moments = _detached({f"{index}.{name}": value for index, state in states.items() for name, value in state.items()})
    if not writes:
        return
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step-{progress.step:08d}"
    with new_folder(target) as temporary:
        save_file(weights, temporary / _WEIGHTS)
        # Tensors beside the moments, under names that do not begin with a number.
        streams = {"random.cpu": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            streams["random.cuda"] = torch.cuda.get_rng_state()
        save_file({**moments, **streams}, temporary / _OPTIMIZER)
        version, internal, gauss = random.getstate()
        name, keys, *rest = np.random.get_state(legacy=True)
        numbers = {"python": [version, list(internal), gauss], "numpy": [name, np.asarray(keys).tolist(), *rest]}
        write_json(temporary / _PROGRESS, asdict(progress) | {"random": numbers})
    # Only when the new checkpoint is in its place, so that there is one at any moment.
    for other in list(folder.iterdir()):
        if other != target:
            remove(other)


def newest(folder: Path) -> Path | None:
    """The newest complete checkpoint, or `None`."""
    # Numbers have leading zeros, so names sort like steps. Half-written folders begin with a dot.
    return max(folder.glob("step-*"), default=None)


def steps_done(checkpoint: Path) -> int:
    """The number of optimizer steps before a checkpoint."""
    return int(checkpoint.name.removeprefix("step-"))


def restore(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Restore model, optimizer and random generators from a checkpoint; an `EnvironmentProblem` if it cannot be read or
    does not fit the model.
    """
    try:
        numbers = json.loads((checkpoint / _PROGRESS).read_bytes())
        saved, flat = load_file(checkpoint / _WEIGHTS), load_file(checkpoint / _OPTIMIZER)
        with torch.no_grad():
            for name, tensor in trainable_state(model).items():
                tensor.copy_(like(saved[name], tensor))
        _set_random_state(flat, numbers["random"])
        progress = Progress(numbers["step"], numbers["accumulation"], numbers["macs"], numbers.get("usable"))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:  # Runtime: another shape
        raise EnvironmentProblem(
            f"A training resumes from its last checkpoint, but {checkpoint} cannot be read or is of another model: "
            f"{type(error).__name__}: {message_of(error)}. Delete that folder to train from the start."
        ) from error
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        index, _, name = key.partition(".")
        if index.isdigit():  # not a random generator's state
            states.setdefault(int(index), {})[name] = value
    _shard_states(states, optimizer)
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress


def trainable_state(model: nn.Module) -> dict[str, Tensor]:
    """Trainable parameters (each shared one once) and persistent buffers by name; the tensors are the model's own."""
    # All names of shared parameters, so that none of them passes for a buffer below.
    parameters = dict(model.named_parameters(remove_duplicate=False))
    state = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    buffers = {name: value for name, value in model.state_dict(keep_vars=True).items() if name not in parameters}
    return {**state, **{name: value for name, value in buffers.items() if isinstance(value, Tensor)}}


def _detached(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: whole(tensor.detach()).contiguous() for name, tensor in tensors.items()}


def _shard_states(states: dict[int, dict[str, Tensor]], optimizer: torch.optim.Optimizer) -> None:
    """Shard each moment like its parameter."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, state in states.items():
        for name, value in state.items():
            # AdamW's counter of steps is no tensor of this shape, and stays whole.
            if value.shape == parameters[index].shape:
                state[name] = like(value, parameters[index])


def _set_random_state(tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    version, internal, gauss = numbers["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = numbers["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
