"""How much hangs on each branch of a backbone: what its predictions lose when a share of the tokens passes by it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch
from torch.nn.functional import kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .branch_dropout import branches, pass_by
from .harness_docs import held_out
from .math_problems import make_math_problem
from .qa_questions import make_question
from .stories import make_story

SKIPPED = 0.36  # of the tokens; about what a method skips everywhere to save 20 % net
_TEXTS = 32


def sensitivities(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: int = _TEXTS
) -> dict[str, dict[str, float]]:
    """Per branch the `branch_divergences` on stories as the backbone has read, and on the answers of the written tasks.

    Args:
        model: The backbone, as pretrained or fine-tuned.
        tokenizer: Its own.
        texts: How many validation items of each kind.
    """
    stories = [tokenizer(story.text)["input_ids"] for story in held_out(make_story, "validation", texts)]
    found = {"nano_text": branch_divergences(model, stories, [1] * texts)}
    for name, make in (("nano_math", make_math_problem), ("nano_qa", make_question)):
        items = held_out(make, "validation", texts)
        rows = [tokenizer(f"{item.prompt} {item.target}")["input_ids"] for item in items]
        found[name] = branch_divergences(model, rows, [len(tokenizer(item.prompt)["input_ids"]) for item in items])
    return found


def dominance(divergences: dict[str, float]) -> float:
    """The largest divergence as a multiple of the median one."""
    return max(divergences.values()) / median(divergences.values())


@torch.inference_mode()
def branch_divergences(
    model: PreTrainedModel, rows: Sequence[list[int]], starts: Sequence[int], share: float = SKIPPED, seed: int = 1
) -> dict[str, float]:
    """Branch -> mean Kullback-Leibler divergence, in nats, from the model's next-token distributions to those with it.

    Args:
        model: The backbone.
        rows: Token ids of each text.
        starts: Of each text the place of the first token whose prediction counts, at least 1; earlier ones pass by too.
        share: Of the tokens that pass by the one branch, drawn at random.
        seed: Of the draws, the same for every branch.
    """
    model.eval()
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # right padding is invisible
    places = torch.arange(1, ids.shape[1])
    counted = (places >= torch.tensor(starts)[:, None]) & (places < torch.tensor([len(row) for row in rows])[:, None])

    def predicted() -> torch.Tensor:
        return log_softmax(model(input_ids=ids).logits[:, :-1][counted], dim=-1)

    full, found = predicted(), {}
    for name, branch in branches(model):
        hook = pass_by(branch, share, torch.Generator().manual_seed(seed), training=False)
        try:
            found[name] = float(kl_div(predicted(), full, log_target=True, reduction="batchmean"))
        finally:
            hook.remove()
    return found
