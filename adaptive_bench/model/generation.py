"""Generation with a cache in which finished rows leave the batch, so that nobody computes or counts them any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from adaptive_bench.errors import UsageError
from adaptive_bench.model.forward import ForwardModel


@torch.no_grad()
def generate(
    model: ForwardModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    max_new_tokens: int,
    eos_token_ids: Sequence[int] = (),
    stop: Callable[[Sequence[int]], bool] | None = None,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[list[int]]:
    """Continue every row until it ends or the context is full.

    Args:
        input_ids: [B, S] prompts, padded on the left.
        attention_mask: [B, S], 0 for padding.
        max_new_tokens: At most so many new tokens a row.
        eos_token_ids: A row ends after one of these (it is part of the result).
        stop: Called with a row's new tokens; true ends the row.
        do_sample: Draw from the distribution instead of taking its maximum.
        temperature, top_p, seed: Of the draw.

    Returns:
        New token ids of each row.

    Raises:
        UsageError: The model is in `train()` mode, prompts are padded on the right or longer than the context.
    """
    if model.training:
        raise UsageError("generate() needs a model in eval() mode, got one in train() mode. Call eval() first.")
    if attention_mask is not None and not bool(attention_mask[:, -1].all()):
        raise UsageError(
            "generate() needs prompts padded on the left, got a row that ends in padding. Set padding_side='left'."
        )
    context = model.backbone.context_length
    lengths = [input_ids.shape[1]] * input_ids.shape[0] if attention_mask is None else attention_mask.sum(1).tolist()
    if max(lengths, default=0) >= context:
        raise UsageError(
            f"A prompt must be shorter than the context of {context} tokens, got {max(lengths)}. "
            "Shorten the prompt, use fewer shots, or choose a model with a longer context."
        )
    room = [min(max_new_tokens, context - length) for length in lengths]  # padding takes none of it
    generator = torch.Generator(device=input_ids.device).manual_seed(seed)
    results: list[list[int]] = [[] for _ in range(input_ids.shape[0])]
    rows = list(range(input_ids.shape[0]))
    output = model(input_ids, attention_mask, use_cache=True, logits_to_keep=1)
    for _ in range(max_new_tokens):
        chosen = _choose(output.logits[:, -1], do_sample, temperature, top_p, generator)
        alive = []
        for index, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            results[row].append(token)
            ended = token in eos_token_ids or (stop is not None and stop(results[row]))
            if not ended and len(results[row]) < room[row]:
                alive.append(index)
        if not alive:
            break
        if len(alive) < len(rows):
            kept = torch.tensor(alive, device=input_ids.device)
            output.past_key_values.select_rows(kept)
            chosen, rows = chosen[kept], [rows[index] for index in alive]
        output = model(chosen[:, None], past_key_values=output.past_key_values, use_cache=True, logits_to_keep=1)
    return results


def _choose(logits: Tensor, do_sample: bool, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """Next token [B] from logits [B, V]."""
    if not do_sample:
        return logits.argmax(dim=-1)
    ordered, tokens = (logits.float() / temperature).softmax(dim=-1).sort(dim=-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(dim=-1) - ordered > top_p, 0.0)
    return tokens.gather(1, torch.multinomial(ordered, 1, generator=generator))[:, 0]
