"""Measures evaluation against lm-eval's own Hugging Face adapter in one process; scores must be equal.

    ADAPTIVE_BENCH_DATA=<folder> python benchmarks/evaluation.py    # adds its keys to benchmarks/results.json

The folder holds `piqa` (train, validation), `hellaswag` (validation; the first rows serve as worked examples) and
`mmlu` (dev, validation, test; with a column `subject`) as JSON lines. Multiple choice runs on a Llama of 4 layers, H
256, random weights, fp32, with the tokenizer of the nano model. Its vocabulary is small on purpose: the stock adapter
computes the logits of whole prompts, so a large vocabulary would flatter us. Its context holds every prompt.
Generation runs on the nano model. Both adapters get the same documents at the same batch size; rounds alternate between
them, every ratio is taken within a round, and the median is reported. Before that, all documents of the check are
compared one by one. Only the time inside the adapter counts: building prompts and judging answers is lm-eval's own
work and the same for both. `--cpu` takes processor time, with one thread, for a machine that others use as well.

Keys: `eval_hellaswag5`, `eval_piqa5`, `eval_piqa0`, `eval_mmlu5`, `eval_generate`: time of the stock adapter over ours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lm_eval import evaluator
from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM
from transformers import LlamaConfig, LlamaForCausalLM

from adaptive_bench.evaluation.evaluate import FEWSHOT_SEED
from adaptive_bench.evaluation.lm_eval_model import AdaptiveLM
from adaptive_bench.evaluation.loading import load_task, quiet
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.runs.backbone_source import find_backbone

RESULTS = Path(__file__).with_name("results.json")
SIZES = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8}
CONTEXT = 8192
SUBJECT = "astronomy"


class Case(NamedTuple):
    """What one key measures.

    Attributes:
        task: Name of the task.
        shots: Worked examples before each question.
        docs: Documents of a timed round.
        batch_size: Rows of a batch, for both adapters.
    """

    task: str
    shots: int
    docs: int
    batch_size: int


CASES = {
    "eval_hellaswag5": Case("hellaswag", 5, 16, 16),
    "eval_piqa5": Case("piqa", 5, 32, 16),
    "eval_piqa0": Case("piqa", 0, 64, 16),
    "eval_mmlu5": Case(f"mmlu_{SUBJECT}", 5, 16, 16),
    "eval_generate": Case("nano_math", 0, 128, 64),
}


def write_data(source: Path, target: Path) -> None:
    """Lay out the data as the stock tasks expect it: every split that they name, and a folder for a configuration."""
    hellaswag = _rows(source / "hellaswag", "validation")
    _write(target / "hellaswag", {"train": hellaswag[:500], "validation": hellaswag[500:1500]})
    piqa = {split: _rows(source / "piqa", split)[:1500] for split in ("train", "validation")}
    _write(target / "piqa", piqa)
    subject = {
        split: [row for row in _rows(source / "mmlu", split) if row["subject"] == SUBJECT]
        for split in ("dev", "validation", "test")
    }
    _write(target / "mmlu" / SUBJECT, subject)


def _rows(folder: Path, split: str) -> list[dict[str, Any]]:
    plain = folder / f"{split}.jsonl"
    content = plain.read_bytes() if plain.is_file() else gzip.decompress(plain.with_suffix(".jsonl.gz").read_bytes())
    return [json.loads(line) for line in content.splitlines()]  # texts hold Unicode's line separators


def _write(folder: Path, splits: dict[str, list[dict[str, Any]]]) -> None:
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Without this file the loader treats `dev` as another name of `validation`.
    files = "".join(f"  - split: {split}\n    path: {split}.jsonl\n" for split in splits)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n")


def timed(call: Callable[..., Any], clock: Callable[[], float], took: list[float]) -> Callable[..., Any]:
    """The same call, which also appends its seconds to `took`."""

    def run(*positional: Any, **named: Any) -> Any:
        start = clock()
        result = call(*positional, **named)
        took.append(clock() - start)
        return result

    return run


class Adapters:
    """Both adapters on the same model."""

    def __init__(self, model: LlamaForCausalLM, tokenizer: Any, data: Path, clock: Callable[[], float]) -> None:
        self.model, self.tokenizer, self.data, self.clock = model.eval(), tokenizer, data, clock
        self.adaptive = AdaptiveModel.build(model, "dense").eval()

    def stock(self, case: Case) -> LM:
        """lm-eval's own adapter."""
        return HFLM(pretrained=self.model, tokenizer=self.tokenizer, batch_size=case.batch_size, max_length=self.length)

    def ours(self, case: Case) -> LM:
        """This package's adapter."""
        return AdaptiveLM(self.adaptive, self.tokenizer, batch_size=case.batch_size)

    @property
    def length(self) -> int:
        """Context of the model, in tokens."""
        return self.adaptive.backbone.context_length

    def run(self, case: Case, lm: LM, docs: int) -> tuple[float, list[dict[str, Any]]]:
        """The seconds that an evaluation spends in the adapter, and its samples."""
        task = load_task(find_task(case.task), self.data, case.shots)
        task.set_fewshot_seed(FEWSHOT_SEED)
        tasks = {"tasks": {case.task: task}, "groups": {}, "group_map": {}}
        took: list[float] = []
        for name in ("loglikelihood", "generate_until"):
            setattr(lm, name, timed(getattr(lm, name), self.clock, took))
        with quiet():
            results = evaluator.evaluate(lm, tasks, limit=docs, bootstrap_iters=0)
        return sum(took), results["samples"][case.task]


def assert_equal(case: Case, stock: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Assert that both adapters gave the same scores, document by document."""
    assert len(stock) == len(ours)
    for expected, found in zip(stock, ours, strict=True):
        assert expected["doc_id"] == found["doc_id"]
        assert expected["arguments"] == found["arguments"], f"{case.task}: other prompts"
        for metric in expected["metrics"]:
            assert expected[metric] == found[metric], f"{case.task}, document {expected['doc_id']}: {metric}"
        for (wanted,), (got,) in zip(expected["resps"], found["resps"], strict=True):
            close = wanted == got if isinstance(wanted, str) else abs(wanted[0] - got[0]) < 1e-3
            assert close, f"{case.task}, document {expected['doc_id']}: {wanted} and {got}"


def speedups(adapters: Adapters, case: Case, rounds: int) -> list[float]:
    """The stock adapter's time over ours in each round; scores are compared in every round."""
    ratios = []
    for number in range(rounds + 1):
        stock_s, stock = adapters.run(case, adapters.stock(case), case.docs)
        ours_s, ours = adapters.run(case, adapters.ours(case), case.docs)
        assert_equal(case, stock, ours)
        if number:  # the first round warms up
            ratios.append(stock_s / ours_s)
    return ratios


def measure(keys: list[str], data: Path, rounds: int, check: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median ratio of the stock adapter's time over ours, for each key."""
    nano = find_backbone("nano")
    tokenizer = nano.load_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        initializer_range=0.1,
        **SIZES,
    )
    config.eos_token_id = tokenizer.eos_token_id
    tiny = config.__class__(**config.to_dict() | {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2})
    scoring, checking = (Adapters(LlamaForCausalLM(one), tokenizer, data, clock) for one in (config, tiny))
    writing = Adapters(nano.load_model(), tokenizer, data, clock)
    results = {}
    for key in keys:
        case, generates = CASES[key], key == "eval_generate"
        compared = writing if generates else checking
        if check:
            (_, stock), (_, ours) = (compared.run(case, lm(case), check) for lm in (compared.stock, compared.ours))
            assert_equal(case, stock, ours)
        ratios = speedups(writing if generates else scoring, case, rounds)
        results[key] = statistics.median(ratios)
        print(f"{key}: {results[key]:.2f} (rounds {', '.join(f'{ratio:.2f}' for ratio in ratios)})", flush=True)
    return results


def main() -> None:
    """Measure, print and merge into `benchmarks/results.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ADAPTIVE_BENCH_DATA"))
    parser.add_argument("--keys", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", type=int, default=200, help="documents compared one by one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of wall time")
    given = parser.parse_args()
    if given.data_dir is None:
        parser.error("give --data-dir or set ADAPTIVE_BENCH_DATA")
    torch.set_num_threads(1 if given.cpu else given.threads)
    clock = time.process_time if given.cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(given.data_dir), Path(folder))
        found = measure(given.keys, Path(folder), given.rounds, given.check, clock)
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps({**known, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
