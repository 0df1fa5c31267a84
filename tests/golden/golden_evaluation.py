"""What evaluation makes of a model beside its scores on a task: what is cut of a text and what of it is scored, where
writing ends, and which savings a sweep asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance

from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.sweep import sweep
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.store.evaluation import Point
from adaptive_bench.task import Example
from adaptive_bench.testing.backbones import write_model_folder
from adaptive_bench.training import encode_examples
from adaptive_bench.training.generated_text import generated_text

_CONTEXT = 48  # bytes, which are the tokens of the tiny model
_QUESTION = "What burns in the rain?"
_SCORED = (  # contexts that are shared, alone, none at all, and longer than fits
    *((_QUESTION, " Fire."), (_QUESTION, " F"), (_QUESTION, " Fire does not."), ("Ice", " melts."), ("", "Sand")),
    *((3 * _QUESTION, " Fire."), (3 * _QUESTION, " Salt!"), ("Ice", " and" * 11)),
)
_TEXTS = ("Ice melts.", "Wood burns, and ice does not. " * 5, "")
_PROMPTS = ("Ice", _QUESTION, "Sand is salt and rain and fire and wood")
_WRITTEN = 16
_LARGER = 12.0  # than the model's own weights: else it finds every byte as likely as any other


def of_texts(folder: Path) -> dict[str, Any]:
    """Of a tiny model with a short context: likelihoods of continuations and of whole texts, and what it writes."""
    source = find_backbone(str(write_model_folder(folder)))
    backbone, tokenizer = source.load_model(), source.load_tokenizer()
    backbone.config.max_position_embeddings = _CONTEXT
    with torch.no_grad():
        for weight in (part for part in backbone.parameters() if part.dim() > 1):
            weight.mul_(_LARGER)
    model = AdaptiveModel.build(backbone, "random_skip", seed=1).eval()
    model.dial = model.method.dial_for(0.3)
    judge = AdaptiveLM(model, tokenizer, batch_size=2)
    plain = _written(judge, [])
    # End strings that are written, the longer one of each two ending where the shorter one does; and one that is not.
    pairs = [next((pair for pair in _pairs(text[1:]) if pair.isascii()), "@@") for text in plain]
    ends = [end for pair in pairs for end in (pair[1], pair)]
    examples = [Example(prompt, f" {'wood ' * (1 + place)}") for place, prompt in enumerate(_PROMPTS)]
    gold = encode_examples(examples, tokenizer, _CONTEXT, SilentReporter())
    found = {
        "continuations": [list(one) for one in judge.loglikelihood(_requests("loglikelihood", _SCORED))],
        "texts": judge.loglikelihood_rolling(_requests("loglikelihood_rolling", [(text,) for text in _TEXTS])),
        "written": plain,
        "written up to an end": _written(judge, [*ends, "@@"]),
        "tokens": [judge.prompt_tokens, judge.generated_tokens],
        "written for calibration": [
            [*one.token_ids, one.prompt_length] for one in generated_text(model, gold, tokenizer, 2)
        ],
    }
    return found | {"saved": model.compute_report()["saved"]}


def _pairs(text: str) -> list[str]:
    return [one + other for one, other in pairwise(text)]


def _written(judge: AdaptiveLM, ends: list[str]) -> list[str]:
    settings = {"until": ends, "max_gen_toks": _WRITTEN, "do_sample": False}
    return judge.generate_until(_requests("generate_until", [(prompt, settings) for prompt in _PROMPTS]))


def _requests(kind: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Instance]:
    """Those with one beginning are of one document."""
    beginnings = [first for first, *_ in arguments]
    documents = [("golden", beginnings.index(first), 1) for first in beginnings]
    return [Instance(kind, {}, one, 0, metadata=about) for one, about in zip(arguments, documents, strict=True)]


_LEVELS = (0.0, 0.05, 0.15, 0.25)
_CURVES: dict[str, Callable[[float], float]] = {  # what is saved where a share of tokens is asked for
    "a costly gate": lambda asked: 0.9 * asked - 0.08,
    "slow at first": lambda asked: asked**2,
    "goes no further": lambda asked: min(0.12, asked),
    "steps": lambda asked: int(8 * asked) / 8,
}


def of_sweeps() -> dict[str, Any]:
    """Savings asked for, in order: of dials of some shapes, with held-out text like the task, with other, with none."""
    found = {}
    for name, curve in _CURVES.items():
        texts: dict[str, Callable[[float], float | None]] = {
            "text like it": curve,
            "other text": lambda asked: 0.8 * asked,
            "no text": lambda _: None,
        }
        for text, held_out in texts.items():
            for end in (0.9, 0.4):
                measured = sweep(_measure(curve), held_out, _LEVELS, "net", end, 0.01)
                found[f"{name}, {text}, to {end}"] = list(measured)
    return found


def _measure(curve: Callable[[float], float]) -> Callable[[float], Point]:
    return lambda asked: Point(dial=asked, score=1 - asked, saved={"net": curve(asked)})
