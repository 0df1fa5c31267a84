"""Prompts of tasks as tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed

from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.drawn import ask_only, drawn
from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED
from adaptive_bench.evaluation.language_model import AdaptiveLM
from adaptive_bench.evaluation.lookup import find_task, load_task
from adaptive_bench.evaluation.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel


@dataclass(frozen=True)
class Prompts:
    """What is continued.

    Attributes:
        token_ids: Of each prompt, at least one token.
        shortened: How many lost their beginning, so that there is room for new tokens.
        ends: Tokens that end a text.
    """

    token_ids: list[list[int]]
    shortened: int
    ends: tuple[int, ...]


def prompts_of(
    model: AdaptiveModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: Sequence[str],
    *,
    limit: int,
    new: int,
    num_fewshot: int | None,
    data_dir: Path | None,
) -> Prompts:
    """The prompts of some test documents of tasks, each once, as `evaluate` would ask them.

    Args:
        limit: Documents of each task, drawn as by `evaluate`.
        new: New tokens for which there has to be room.

    Raises:
        UsageError: A task asks for the likelihood of whole texts, which have no prompts; no room for one token.
    """
    lm = AdaptiveLM(model, tokenizer, batch_size=1)
    room = lm.context_length - new
    if room < 1:
        raise UsageError(
            f"New tokens have to leave room for a prompt in the context of {lm.context_length} tokens, got "
            f"--max-new-tokens {new}. Lower it."
        )
    texts: dict[str, None] = {}
    for name in tasks:
        set_seed(FEWSHOT_SEED)
        random.seed(0)
        with quiet():
            known = find_task(name)
            task: Any = load_task(known, data_dir, num_fewshot)
            task.set_fewshot_seed(FEWSHOT_SEED)
            ask_only(task, drawn(known, len(task.eval_docs), limit))
            task.build_all_requests()
        if any(request.request_type == "loglikelihood_rolling" for request in task.instances):
            raise UsageError(
                f"Texts are written after prompts, but {name} asks for the likelihood of whole texts. Name a task "
                "whose answers are written or chosen."
            )
        texts |= dict.fromkeys(request.args[0] for request in task.instances)
    encoded = [lm.tok_encode(text) or [lm.prefix_token_id] for text in texts]
    return Prompts([row[-room:] for row in encoded], sum(len(row) > room for row in encoded), lm.end_tokens)
