"""What the real training loop computes on a tiny model, and what a training is priced at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import SilentReporter
from adaptive_bench.recipe import LoraRecipe, TrainRecipe
from adaptive_bench.runs.backbone_source import find_backbone
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.records import Record
from adaptive_bench.task import Example
from adaptive_bench.testing.backbones import write_model_folder
from adaptive_bench.testing.subject import CALIBRATION_TEXT, Subject, spread
from adaptive_bench.training import calibration_batches, encode_examples, price, train
from adaptive_bench.training.encoding import padding_id

sys.path.append(str(Path(__file__).parents[1] / "support"))  # also where `outputs` is a script
from overhead import measure_overhead

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
        targets = {axis: price(model, [batch], 0.2, axis).to_json() for axis in ("tokens", "core", "net")}
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
