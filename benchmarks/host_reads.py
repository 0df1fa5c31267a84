"""Counts how often Python waits for values from an accelerator, on a pretended accelerator (`tests/support`).

Every method runs with its defaults on a random Llama with 3 layers and with 5: a prompt of 9 tokens in 4 rows, one more
token for each row, and a training step of 4 examples in 2 micro-batches. Generation also reads the chosen tokens once
per step (to test for the end), and training reads the norm of its gradient; both belong to the caller and are not
counted.

Key: `host_reads`, a list of rows with `method` and `prefill`, `step` and `training`, each [with 3 layers, with 5];
`training` is `None` if nothing can be trained.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from measure import llama, merge, tokens

from adaptive_bench import registry
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.processes import Processes
from adaptive_bench.training.distributed import DistributedTraining
from adaptive_bench.training.encoding import EncodedExample
from adaptive_bench.training.micro_batches import accumulate, split

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from pretended_accelerator import DEVICE, pretended

LAYERS, SAVED, VOCABULARY = (3, 5), 0.3, 64


def build(spec: str, layers: int) -> AdaptiveModel:
    """A method on a small random Llama."""
    backbone = llama(hidden=32, layers=layers, inner=48, vocabulary=VOCABULARY, heads=4, kv_heads=2)
    return AdaptiveModel.build(backbone, spec, seed=1)


@torch.no_grad()
def while_writing(spec: str, layers: int) -> tuple[int, int]:
    """The number of reads for the prompt, and for one step after it."""
    model = build(spec, layers).eval()
    if model.needs_calibration:
        ids = tokens(8, 12, VOCABULARY)
        later = (torch.arange(12) >= 6).expand_as(ids)
        text = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": later}
        model.calibrate([text], [SAVED])
    model.dial = model.method.dial_for(min(SAVED, model.method.max_saved_tokens))
    with pretended() as accelerator:
        ids = tokens(4, 9, VOCABULARY).to(model.to(DEVICE).device)
        for _ in range(2):  # the first round creates tables and buffers; the second one counts
            cache = model.new_cache(4, capacity=12)
            counts = []
            for part in (ids, ids[:, :1], ids[:, :1]):
                accelerator.reads.clear()
                model(part, past_key_values=cache, use_cache=True, logits_to_keep=1)
                counts.append(len(accelerator.reads))
    return counts[0], counts[2]


def while_training(spec: str, layers: int) -> int | None:
    """The number of reads of one training step, or `None` if nothing can be trained."""
    model = build(spec, layers).train()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return None
    model.begin_step(9, 10)
    batch = [EncodedExample(tuple(row), 3) for row in tokens(4, 9, VOCABULARY).tolist()]
    with pretended() as accelerator:
        model.to(DEVICE)
        training = DistributedTraining(model, Processes(), fully_sharded=False)
        accumulate(training, split(batch, 2), 0, "fp32")
        return len(accelerator.reads)


def measure() -> list[dict[str, Any]]:
    """A row for every installed method."""
    rows = []
    for name in registry.names("methods"):
        written = [while_writing(name, layers) for layers in LAYERS]
        trained = None if name == "base" else [while_training(name, layers) for layers in LAYERS]
        rows.append(
            {
                "method": name,
                "prefill": [prompt for prompt, _ in written],
                "step": [step for _, step in written],
                "training": None if trained is None or None in trained else trained,
            }
        )
    return rows


if __name__ == "__main__":
    merge("host_reads", {"host_reads": measure()}, layers=" and ".join(map(str, LAYERS)), rows=4)
