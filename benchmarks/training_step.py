"""Measures a training step of GateSkip against a step of the dense model.

Model: Llama of 4 layers, H 512, 8 heads with 4 key/value heads, MLP 1408, vocabulary 1024, random weights, fp32.
Batch of 8 rows of 128 tokens with masked prompts, 2 threads; a step is forward, backward, gradient clipping and AdamW,
as in training. Each model has its own backbone.

Keys: `train_gateskip_over_dense`, time of a step with vector gates over a dense step (median over rounds in turn);
`train_gateskip_scalar_over_dense`, the same for scalar gates; `train_gateskip_share`, MACs of the gates over those of
the dense model in a forward pass; `train_gateskip_allowed`, 1.05 x (1 + share); `train_dense_s`, seconds of a dense
step.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from measure import llama, merge, ratio, tokens, use_processor

from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import in_turns

BATCH, LENGTH, THREADS, VOCABULARY = 8, 128, 2, 1024
TOLERANCE = 1.05
SPECS = {"dense": "dense", "gateskip": "gateskip", "gateskip_scalar": "gateskip[shape=scalar]"}


def build(spec: str) -> AdaptiveModel:
    """A method on its own backbone."""
    plain = llama(hidden=512, layers=4, inner=1408, vocabulary=VOCABULARY, heads=8, kv_heads=4)
    return AdaptiveModel.build(plain, spec, seed=1)


def training_step(
    model: AdaptiveModel,
    batch: int = BATCH,
    length: int = LENGTH,
    *,
    prompt: int | None = None,
    bf16: bool = False,
    return_logits: bool = True,
) -> Callable[[], float]:
    """A function that takes one optimizer step as in the middle of a training, and returns its loss.

    Args:
        model: The model to train.
        batch, length: Rows of a batch, and tokens of a row.
        prompt: Tokens of each row that are not learned; `None` for half of them.
        bf16: Compute in bf16 with fp32 weights, as a training of that precision does.
        return_logits: Keep the logits of all tokens, which a training does not do.
    """
    device = model.device
    ids = tokens(batch, length, model.config.vocab_size).to(device)
    later = (torch.arange(length, device=device) >= (length // 2 if prompt is None else prompt)).expand_as(ids)
    labels = ids.masked_fill(~later, -100)
    optimizer = torch.optim.AdamW(model.parameter_groups(1e-4), fused=True)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def step() -> float:
        model.train()
        model.begin_step(50, 100)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            output = model(
                ids, torch.ones_like(ids), labels=labels, continuation_mask=later, return_logits=return_logits
            )
        loss = output.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def gate_share(model: AdaptiveModel) -> float:
    """MACs of the decisions over the dense model's MACs, in one forward pass of the batch."""
    with torch.no_grad():
        model.eval()
        model.reset_ledger()
        model(tokens(BATCH, LENGTH, VOCABULARY))
    report = model.compute_report()
    return -float(report["saved"]["net"] - report["saved"]["core"])


def main() -> None:
    """Measure, print and merge into `results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    use_processor(THREADS)
    share = gate_share(build("gateskip"))
    times = in_turns({key: training_step(build(spec)) for key, spec in SPECS.items()}, rounds)
    values = {
        "train_gateskip_over_dense": ratio(times["gateskip"], times["dense"]),
        "train_gateskip_scalar_over_dense": ratio(times["gateskip_scalar"], times["dense"]),
        "train_gateskip_share": share,
        "train_gateskip_allowed": TOLERANCE * (1 + share),
        "train_dense_s": statistics.median(times["dense"]),
    }
    merge("training_step", values, model="Llama H 512, 4 layers", batch=BATCH, length=LENGTH, rounds=rounds)


if __name__ == "__main__":
    main()
