"""Asking the same questions again in a way that changes nothing but luck.

Greedy decoding gives the same answer to the same prompt, so a score that is chosen for being high has to be measured on
another prompt: with other worked examples where the task has some, else with other white space before it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any, NamedTuple

from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED


class Asking(NamedTuple):
    """One way to ask all documents of a task.

    Attributes:
        prefix: Text before every prompt.
        seed: Worked examples are drawn with it.
    """

    prefix: str = ""
    seed: int = FEWSHOT_SEED


def askings(count: int, num_fewshot: int) -> list[Asking]:
    """So many different ways; the first is the task as it is."""
    if num_fewshot:
        return [Asking(seed=FEWSHOT_SEED + number) for number in range(count)]
    spaces = ("".join(marks) for length in range(1, 12) for marks in product("\n ", repeat=length))
    return [Asking(), *(Asking(prefix) for prefix in islice(spaces, count - 1))]


def why_asked_once(output_type: str, num_fewshot: int, encode: Callable[[str], Any]) -> str | None:
    """Why a task cannot be asked in another way, or `None`.

    Args:
        output_type: lm-eval's word for what it asks of a model.
        encode: The model's tokenizer.
    """
    if output_type == "loglikelihood_rolling":
        return "it scores whole texts and has no prompt that could be asked in another way"
    if not num_fewshot and encode("\nA") == encode("A"):
        return "the tokenizer drops white space before a prompt, the only thing that another asking would change"
    return None
