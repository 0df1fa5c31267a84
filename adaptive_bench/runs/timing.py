"""Times method specs on a model, for `adaptive-bench time`.

Time depends on which tokens are kept, not on how good the weights are. Without a run, the methods are untrained and
read random tokens; their dials are calibrated on other random tokens, and their real saving is measured. With a run,
its checkpoints read its calibration text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from adaptive_bench import hardware
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, UsageError
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.efficiency import time_model
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.backbone_source import find_backbone, find_device
from adaptive_bench.runs.evaluation_work import trained_model
from adaptive_bench.runs.run_plan import plan
from adaptive_bench.runs.training_text import draw_calibration
from adaptive_bench.runs.work_units import DialEvaluation
from adaptive_bench.spec import MethodSpec
from adaptive_bench.store.keys import code_behind
from adaptive_bench.store.records import SCHEMA, read_timing, timing_path, write_timing
from adaptive_bench.training.encoding import calibration_batches, encode_examples, padding_id

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_CALIBRATION_TOKENS = 4096  # random tokens read for calibration without a run
_CALIBRATION_ROWS = 16  # sequences of a run's text calibrated together


@dataclass(frozen=True)
class TimingRequest:
    """The arguments of `adaptive-bench time`.

    Attributes:
        batches: Batch sizes in rows; each is a setting of its own.
        prompt, new: Tokens of each prompt, and new tokens after it.
        run: Configuration of a run whose checkpoints and text are used; `None` for untrained methods.
    """

    specs: tuple[MethodSpec, ...]  # methods to time
    model: str = "nano"  # as for `run`
    batches: tuple[int, ...] = (1, 8, 32)  # one user, a few, and a server
    prompt: int = 128
    new: int = 128
    savings: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)  # shares of saved tokens that the dials are set for
    rounds: int = 7  # rounds of prefill
    precision: str = "fp32"  # `fp32` or `bf16`
    device: str = "auto"  # as for `run`
    out: Path = Path("runs")  # output folder for the records
    run: RunConfig | None = None
    again: bool = False  # whether to measure again what is on disk


def time_specs(request: TimingRequest, reporter: Reporter | None = None) -> list[dict[str, Any]]:
    """Time every spec at every batch size and write a record for each; records on disk are read instead.

    Returns:
        The records, batch by batch.

    Raises:
        UsageError: A method is unknown or not in the run, the context is too short, or the run has no text.
        EnvironmentProblem: The model cannot be reached, or a training of the run is not finished.
    """
    reporter = reporter or SilentReporter()
    bench = _Bench(request)
    records = []
    with reporter.task("time", len(request.batches) * len(request.specs)) as task:
        for batch in request.batches:
            for spec in request.specs:
                content = bench.content(spec, batch)
                known = None if request.again else read_timing(timing_path(request.out, content))
                records.append(known or write_timing(request.out, content, bench.measure(spec, batch)))
                task.advance(1, method=str(spec), batch=batch)
    return records


class _Bench:
    """Makes the timings of a request, which share the model and the text."""

    def __init__(self, request: TimingRequest) -> None:
        self.request = request
        self.source = find_backbone(request.model)
        self.device = find_device(request.device)
        self.sweeps = () if request.run is None else plan(request.run).sweeps

    def content(self, spec: MethodSpec, batch: int) -> dict[str, Any]:
        """Everything that a time depends on; its hash is the key of the record."""
        request, sweep = self.request, self._sweep(spec)
        training = None if sweep is None else sweep.training
        setting = {
            "device": self.device.type,
            "device_name": hardware.describe_device(self.device),
            "threads": torch.get_num_threads(),
            "precision": request.precision,
            "batch": batch,
            "prompt": request.prompt,
            "new": request.new,
        }
        versions = hardware.environment(self.device)
        spared = {"eligible": sweep.content["eligible"]} if sweep is not None and "eligible" in sweep.content else {}
        return {
            "schema": SCHEMA,
            "method": str(spec),
            "model": request.model,
            "model_fingerprint": self.source.fingerprint,
            "weights": "untrained" if training is None else f"checkpoint {training.folder.name}, seed {training.seed}",
            "tokens": "random" if request.run is None else f"calibration text of {', '.join(request.run.tasks)}",
            "calibration_tokens": self._calibration_length,
            "setting": setting,
            "savings": list(request.savings),
            "rounds": request.rounds,
            "code": code_behind(spec.name, "timing"),
            "versions": {name: versions[name] for name in ("adaptive-bench", "torch", "transformers", "python")},
            **spared,
        }

    def measure(self, spec: MethodSpec, batch: int) -> dict[str, Any]:
        """Time one spec at one batch size."""
        request = self.request
        model = self._model(spec)
        if (length := request.prompt + request.new) > model.backbone.context_length:
            raise UsageError(
                f"Prompt and new tokens must fit the context of {model.backbone.context_length} tokens, got "
                f"{request.prompt} + {request.new}. Lower --prompt or --new."
            )
        # A trained model has measured this before its training.
        if self._sweep(spec) is None:
            model.prepare_training(self._calibration(model))
        calibration: list[dict[str, Any]] = []
        if model.needs_calibration:
            reachable = [min(saving, model.method.max_saving) for saving in request.savings]
            calibration = model.calibrate(self._calibration(model), reachable)["dials"]
        tokens = self._tokens(batch, length, model.backbone.vocab_size)
        timing = time_model(self.plain, model, request.savings, tokens, prompt=request.prompt, rounds=request.rounds)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"date": now, "calibration": calibration, **timing}

    @cached_property
    def plain(self) -> PreTrainedModel:
        """The Hugging Face model."""
        model: Any = self.source.load_model()
        return model.to(self.device, PRECISIONS[self.request.precision]).eval()

    def _model(self, spec: MethodSpec) -> AdaptiveModel:
        if (sweep := self._sweep(spec)) is None:
            return AdaptiveModel.build(self.plain, spec, seed=1).to(self.device).eval()
        if not sweep.training.finished:
            raise EnvironmentProblem(
                f"The run must be finished to be timed, but `{sweep.training}` is not. Give its `run` again."
            )
        return trained_model(sweep, dtype=PRECISIONS[self.request.precision]).to(self.device)

    def _sweep(self, spec: MethodSpec) -> DialEvaluation | None:
        """The first sweep of a spec in the run; `None` without a run."""
        found = next((sweep for sweep in self.sweeps if sweep.spec == spec), None)
        if found is None and self.request.run is not None:
            methods = ", ".join(self.request.run.methods)
            raise UsageError(f"With --run, --methods are some of the run's: {methods}, got {spec}.")
        return found

    @cached_property
    def _text(self) -> Any:
        """Encoded calibration text of the run."""
        assert self.request.run is not None
        config = self.request.run
        context = min(config.train.max_length, self.plain.config.max_position_embeddings)
        if not (drawn := draw_calibration(config, config.seeds[0])):
            raise UsageError(
                f"With --run the run's own calibration text is read, but none of its tasks, {', '.join(config.tasks)}, "
                f"has any. Leave --run out and name its --model and --methods: random tokens are read then."
            )
        return encode_examples(drawn, self._tokenizer, context, SilentReporter(), chat_template=config.chat_template)

    @cached_property
    def _tokenizer(self) -> Any:
        return self.source.load_tokenizer()

    @property
    def _calibration_length(self) -> int:
        if self.request.run is None:
            return _CALIBRATION_TOKENS
        return sum(len(example.token_ids) for example in self._text)

    def _calibration(self, model: AdaptiveModel) -> list[dict[str, Tensor]]:
        if self.request.run is not None:
            return calibration_batches(self._text, padding_id(self._tokenizer), _CALIBRATION_ROWS, self.device)
        length = self.request.prompt + self.request.new
        rows = max(1, _CALIBRATION_TOKENS // length)
        ids = _random(rows, length, model.backbone.vocab_size, seed=1).to(self.device)
        # [rows, prompt + new]: the new tokens count as written, as they are when time is taken.
        later = (torch.arange(length, device=self.device) >= self.request.prompt).expand_as(ids)
        return [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "continuation_mask": later}]

    def _tokens(self, batch: int, length: int, vocabulary: int) -> Tensor:
        """Tokens [B, prompt + new] for every method: random, or the texts of the run in a row, repeated if short."""
        if self.request.run is None:
            return _random(batch, length, vocabulary, seed=0).to(self.device)
        stream: Iterator[int] = cycle(chain.from_iterable(example.token_ids for example in self._text))
        return torch.tensor([list(islice(stream, length)) for _ in range(batch)], device=self.device)


def _random(rows: int, length: int, vocabulary: int, seed: int) -> Tensor:
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))
