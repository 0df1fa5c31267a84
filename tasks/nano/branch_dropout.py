"""Tokens that pass by a branch: at random in pretraining, so that no single branch comes to carry everything."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel


def branches(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """Name and module of every attention and MLP, in the order of execution."""
    for number, layer in enumerate(model.model.layers):
        yield f"{number} attention", layer.self_attn
        yield f"{number} mlp", layer.mlp


def pass_by(branch: nn.Module, share: float, generator: torch.Generator, training: bool) -> RemovableHandle:
    """From now on each token passes by the branch with probability `share`, until the hook is removed.

    What stays is not scaled up, because a method that skips does not scale either. A token that passes by attention
    still gives the others its keys and values.

    Args:
        branch: An attention or MLP whose output [B, S, H] is added to the residual stream.
        share: Probability in [0, 1).
        generator: Every token of every call draws from it.
        training: Whether tokens pass by in training only, or in evaluation only.
    """

    def drop(branch: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> object:
        if branch.training != training:
            return None
        added = output if isinstance(output, Tensor) else output[0]
        kept = added * (torch.rand((*added.shape[:-1], 1), generator=generator) >= share)
        return kept if isinstance(output, Tensor) else (kept, *output[1:])

    if not 0 <= share < 1:
        raise ValueError(f"The share of tokens that pass by a branch lies in [0, 1), got {share}. Use 0 for none.")
    return branch.register_forward_hook(drop)


def add_branch_dropout(model: PreTrainedModel, share: float, seed: int) -> None:
    """From now on tokens pass by each branch with probability `share` in training, each branch drawing for itself."""
    generator = torch.Generator().manual_seed(seed)
    for _, branch in branches(model):
        pass_by(branch, share, generator, training=True)
