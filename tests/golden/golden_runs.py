"""What evaluation makes of a tiny model beside its scores on a task (what is cut of a text and what of it is scored,
where writing ends, which savings a sweep asks for), what the real training loop computes on it, and what a training is
priced at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from torch import Tensor

from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.sweep import sweep
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import LoraRecipe, TrainRecipe
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.runs.training_work import price
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import Record
from adaptive_bench.task import Example
from adaptive_bench.testing.subject import CALIBRATION_TEXT, Subject, spread
from adaptive_bench.training.encoding import calibration_batches, encode_examples, generated_text, padding_id
from adaptive_bench.training.loop import train

sys.path.append(str(Path(__file__).parents[1] / "support"))  # also where `outputs` is a script
from model_folder import write_model_folder
from overhead import measure_overhead

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
                measured = sweep(curve, held_out, _LEVELS, end, 0.01)
                found[f"{name}, {text}, to {end}"] = list(measured)
    return found


# Training.

# Every setting of the optimizer is one that leaves its mark within ten steps; some sequences are longer than allowed.
_RECIPE = TrainRecipe(
    steps=10,
    batch_size=4,
    accumulation=2,
    learning_rate=1e-2,
    warmup_steps=2,
    weight_decay=0.5,
    betas=(0.8, 0.95),
    clip_norm=0.5,
    max_length=40,
    checkpoint_every=100,
)
_TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "a plateau": ("gateskip[shape=scalar]", {}),
    "a cosine, adapters": (
        "gateskip",
        {"steps": 6, "decay": "cosine", "lora": LoraRecipe(rank=2), "gradient_checkpointing": True},
    ),
    "frozen": ("router_tuned_mod", {"steps": 4}),
}
_BATCH = ("input_ids", "attention_mask", "continuation_mask")
PRICED = ("gateskip", "mod", "calm", "layerskip", "random_skip")


def of_training(folder: Path) -> dict[str, Any]:
    """Of some trainings the log, what they were trained on, what they cost, and weights that they ended with."""
    write_model_folder(folder / "model")
    source = find_backbone(str(folder / "model"))
    found = {}
    for number, (name, (spec, settings)) in enumerate(_TRAININGS.items()):
        model = AdaptiveModel.build(source.load_model(), spec, seed=1)
        model.method.target = 0.4
        place, recipe = folder / str(number), _RECIPE.model_copy(update=settings)
        train(model, _examples(), source.load_tokenizer(), recipe, 3e-3, seed=7, folder=place)
        log = [json.loads(line) for line in (place / "train.jsonl").read_text(encoding="utf-8").splitlines()]
        data, cost = (Record(place).read(section) for section in ("data", "cost"))
        found[name] = {"log": log, "data": data, "cost": cost, "weights": _weights(model)}
    return found


def _examples() -> list[Example]:
    """Prompts of many lengths, a few too long, and documents without a prompt."""
    asked = [Example("What is " + " and ".join("abcdefgh"[: 1 + n % 8]) + "?", f" It is {n}.") for n in range(21)]
    return [*asked, *(Example("", f"Document {n} is about nothing in particular.") for n in range(5))]


def _weights(model: AdaptiveModel) -> dict[str, list[float]]:
    """By parameter the sum of its absolute values and its first value."""
    parts = model.state_dict()
    return {name: [float(part.abs().sum()), float(part.flatten()[0])] for name, part in parts.items() if part.numel()}


def of_pricing() -> dict[str, Any]:
    """What methods are priced at for a target on each axis, and what deciding costs them."""
    found: dict[str, Any] = {}
    batch: dict[str, Tensor] = CALIBRATION_TEXT.arguments
    for name in PRICED:
        model = Subject(MethodSpec.parse(name), "llama").build()
        spread(model)
        targets = {axis: asdict(price(model, [batch], 0.2, axis)) for axis in ("tokens", "core", "net")}
        cost = measure_overhead(model)
        overhead = {key: getattr(cost, key) for key in ("parameters", "parameter_bytes", "decision_macs", "dense_macs")}
        found[name] = {"targets": targets, "overhead": overhead}
    return found


def of_encoding(folder: Path) -> dict[str, Any]:
    """Token ids of examples with tokenizers that put special tokens before or after a text, or neither."""
    from tokenizers.processors import TemplateProcessing

    write_model_folder(folder)
    found: dict[str, Any] = {}
    for name, template in {"none": None, "first": "</s> $A", "last": "$A </s>", "both": "<pad> $A </s>"}.items():
        tokenizer = find_backbone(str(folder)).load_tokenizer()
        if template is not None:
            special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("</s>", "<pad>")]
            tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=special)
            tokenizer.bos_token = "<pad>" if name == "both" else tokenizer.bos_token
        encoded = encode_examples(_examples(), tokenizer, 32, SilentReporter())
        if template is None:
            batches = calibration_batches(encoded, padding_id(tokenizer), 4)
            found["batches"] = [
                [
                    len(batch["input_ids"]),
                    *(int(batch[name].sum()) for name in _BATCH),
                    batch["input_ids"][:, 8].tolist(),
                ]
                for batch in batches
            ]
        found[name] = [
            [*one.token_ids[:3], *one.token_ids[-3:], len(one.token_ids), one.prompt_length] for one in encoded
        ]
    return found
