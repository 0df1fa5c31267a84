"""Turns the saving that a training is trained towards into what its method aims at."""

from __future__ import annotations

from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.training_text import as_planned, draw_flop_calibration_text
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.training import Target, calibration_batches, encode_examples, price
from adaptive_bench.training.encoding import padding_id
from adaptive_bench.training.memory import find_batch_size

_PRICING_BATCH = 16  # sequences
_PRICING_TOKENS = 5_000  # read up to 25 times; costs of a method hardly differ from text to text


def set_target(
    model: AdaptiveModel, training: TrainingRun, config: RunConfig, tokenizer: Any, reporter: Reporter
) -> None:
    """Turn the target saving into the end of the method's schedule, and keep what was found."""
    assert training.target is not None
    max_length = min(config.train.max_length, model.backbone.context_length)
    examples = as_planned(draw_flop_calibration_text(config, training.seed), training.content["target"]["text"])
    text = encode_examples(examples, tokenizer, max_length, SilentReporter(), chat_template=config.chat_template)
    text = text[:: -(-sum(len(one.token_ids) for one in text) // _PRICING_TOKENS)]  # of every task
    saving, axis = training.target, training.content["target"]["axis"]

    def at(batch_size: int) -> Target:
        batches = calibration_batches(text, padding_id(tokenizer), batch_size, model.backbone_model.device)
        return price(model, batches, saving, axis)

    target, _ = find_batch_size(
        at,
        _PRICING_BATCH,
        lambda size: reporter.line(f"price {training.spec}: out of memory; now {size} sequence(s) at a time"),
    )
    model.method.target = target.tokens
    training.record.write("target", target.to_json())
