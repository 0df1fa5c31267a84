"""Functions that the benchmarks share: their models, ratios within rounds, and `results.json`.

Every benchmark is a file in this folder that can be run by itself and merges its keys into `results.json`. Variants
always take turns in one process (`adaptive_bench.model.efficiency`), every ratio is taken within a round, and the
median over rounds is kept.
"""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from adaptive_bench.hardware import describe_device
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import Drive, drive_adaptive, drive_plain
from adaptive_bench.store import atomic

RESULTS = Path(__file__).with_name("results.json")
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)
_kept: list[bool] = []


def use_processor(threads: int) -> None:
    """Set the number of threads, and let the allocator (if it is glibc's) keep memory that it got from the system.

    By default it returns memory above a size that depends on earlier frees, and gets it back in the next call, page by
    page. With 2048 tokens in an MLP of 2048 this takes a fifth of the time, with 1792 tokens none, so speed-ups would
    jump when a variant falls below that size. If memory is kept they do not jump, and the plain model gets faster too.
    """
    torch.set_num_threads(threads)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    _kept[:] = [mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_MMAP_MAX, 0))]


def llama(
    *,
    hidden: int,
    layers: int,
    inner: int,
    vocabulary: int,
    heads: int,
    kv_heads: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    **more: Any,
) -> LlamaForCausalLM:
    """A Llama with random weights in `eval()` mode; the weights are the same each time on the same device.

    Args:
        more: Further values of the model's config.
    """
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "max_position_embeddings": 2048,
    }
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(LlamaConfig(**sizes | more), dtype=dtype).eval()


def drives(
    plain: LlamaForCausalLM,
    variants: Mapping[str, tuple[str, float]],
    *,
    calibrate_on: tuple[int, int] = (16, 128),
) -> dict[str, Drive]:
    """The plain model, and some methods on it.

    Args:
        plain: The plain model.
        variants: For each key, a method spec and the share of saved tokens for which its dial is set.
        calibrate_on: Number of random sequences and tokens of each, for methods that need calibration. The second half
            of each sequence counts as continuation.
    """
    found = {"plain": drive_plain(plain)}
    for key, (spec, saving) in variants.items():
        model = AdaptiveModel.build(plain, spec, seed=1).eval()
        if model.needs_calibration:
            ids = tokens(*calibrate_on, plain.config.vocab_size, seed=1).to(plain.device)
            later = (torch.arange(ids.shape[1], device=ids.device) >= ids.shape[1] // 2).expand_as(ids)
            batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": later}
            model.calibrate([batch], [saving])
        found[key] = drive_adaptive(model, model.method.dial_for(saving) if saving else model.method.dial.skip_nothing)
    return found


def tokens(rows: int, length: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    """Random token ids [rows, length]."""
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def ratio(above_s: Sequence[float], below_s: Sequence[float]) -> float:
    """Median over rounds of the ratio of two times of the same round."""
    return statistics.median(above / below for above, below in zip(above_s, below_s, strict=True))


def saved_net(drive: Drive) -> float:
    """Share of net FLOPs saved, according to a variant's ledger."""
    assert drive.ledger is not None
    return float(drive.ledger.report()["saved"]["net"])


def merge(name: str, values: Mapping[str, Any], **setup: Any) -> None:
    """Put a benchmark's keys into `results.json`, without changing other keys.

    Args:
        name: Name of the benchmark; its setup, device, threads and versions are kept under `setups`.
        values: Values by key.
        setup: The setup to keep.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    about = {
        "device": describe_device("cpu"),
        "threads": torch.get_num_threads(),
        **({"allocator": "keeps its pages"} if _kept == [True] else {}),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    results = {key: value for key, value in results.items() if key != "setup"} | dict(values)
    results["setups"] = results.get("setups", {}) | {name: setup | about}
    atomic.write_json(RESULTS, results)
    print(json.dumps(dict(values), indent=2))
