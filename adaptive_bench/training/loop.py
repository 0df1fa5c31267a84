"""The training loop, the same for every method: same tokens, same order, same optimizer, same number of steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from accelerate.tracking import GeneralTracker, TensorBoardTracker, TrackioTracker, WandBTracker
from accelerate.utils import set_seed

from adaptive_bench import processes, stopping
from adaptive_bench.errors import EnvironmentProblem, TrainingDiverged, UsageError
from adaptive_bench.hardware import give_back, keep_blocks
from adaptive_bench.model.adapters import Adapters
from adaptive_bench.model.saving import Pretrained
from adaptive_bench.progress import Reporter, SilentReporter, TrainingStep
from adaptive_bench.recipe import TrainRecipe
from adaptive_bench.store import atomic
from adaptive_bench.store.records import TRAINING_LOG, Record
from adaptive_bench.task import Example
from adaptive_bench.training import resume
from adaptive_bench.training.cost import FlopCount
from adaptive_bench.training.distributed import DistributedTraining, whole
from adaptive_bench.training.encoding import DataOrder, EncodedExample, describe, encode_examples, padding_id
from adaptive_bench.training.micro_batches import MicroBatches, StepLoss, accumulate, split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adaptive_bench.model import AdaptiveModel

RESUME_FOLDER, CHECKPOINT_FOLDER = "resume", "checkpoint"
_PROJECT = "adaptive-bench"  # name of the project in trackers
_FALLS_FROM = 0.6  # share of the steps after which the plateau of the rate ends and its linear fall begins


@dataclass(frozen=True)
class Tracking:
    """Where a training's curves are sent, besides the log that every training keeps."""

    names: tuple[str, ...] = ()  # `tensorboard`, `trackio`, `wandb`
    run: str = ""  # the training's id, under which a resumed one continues
    title: str = ""
    folder: Path = Path()  # for trackers that write files
    about: Mapping[str, str | int | float] = field(default_factory=dict)  # settings shown beside the curves

    @contextmanager
    def begun(self, steps_done: int) -> Iterator[tuple[GeneralTracker, ...]]:
        """The trackers, ready for the step after `steps_done`."""
        trackers = tuple(self._tracker(name, steps_done) for name in self.names)
        for tracker in trackers:
            tracker.start()
            if not isinstance(tracker, TensorBoardTracker):  # TensorBoard would create another folder at every start
                tracker.store_init_configuration(dict(self.about))
        try:
            yield trackers
        finally:
            for tracker in trackers:
                tracker.finish()

    def _tracker(self, name: str, steps_done: int) -> GeneralTracker:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        match name:
            case "tensorboard":  # what was logged after the checkpoint is logged again
                return TensorBoardTracker(f"{self.title} {self.run}", folder, purge_step=steps_done + 1)
            case "wandb":
                return WandBTracker(_PROJECT, id=self.run, name=self.title, resume="allow", dir=str(folder))
            case _:
                return TrackioTracker(_PROJECT, name=f"{self.title} {self.run}", resume="allow")


def check_trackers(names: tuple[str, ...]) -> None:
    """Check that the packages of the trackers are installed; a `UsageError` if one is missing."""
    for name in names:
        if find_spec(name) is None:
            raise UsageError(
                f"--track {name} needs the package {name!r}, which is not installed. Install it with `pip install "
                f"'adaptive-bench[{name}]'`, or leave --track out: curves are in each record's train.jsonl anyway."
            )


def _curves(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log entry, by the name of their curve."""
    terms = {f"terms/{name}": value for name, value in entry["terms"].items()}
    return {key: entry[key] for key in ("loss", "lr", "gradient_norm", "tokens")} | terms


def train(
    model: AdaptiveModel,
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    recipe: TrainRecipe,
    method_learning_rate: float | None = None,
    *,
    seed: int,
    folder: Path,
    reporter: Reporter | None = None,
    curves: Tracking | None = None,
    pretrained: Pretrained | None = None,
    chat_template: bool = False,
) -> None:
    """Train a model on its device, from the start or from the newest checkpoint in `folder`.

    Writes the record's sections `data` (the training data, with the digest of its order), `timing` and `cost`,
    `train.jsonl` (one line per step, the same bytes for the same seed), resumable state in `resume/`, and at the end
    `checkpoint/`, which exists only when the training is complete. On a CPU a resumed training ends in the same bytes
    as an uninterrupted one. A recipe with no steps writes the model unchanged.

    `cost` is that of this training alone, without another one from whose result it starts: `tokens` read in all steps,
    without padding; `flops` of all forward and backward passes, including heads at every layer, padding, and branches
    of skipping tokens, which the masked executor computes and discards; and `parameters_added`, the method's own.

    Several processes share a training (`processes.Processes.sharing`) if all of them call this with the same arguments.
    Each process computes its rows of every batch, and only the leader writes.

    Args:
        method_learning_rate: Peak rate of the method's own parameters; `None` for the recipe's rate.
        pretrained: The source of the backbone's weights. A checkpoint with adapters then holds the adapters and this
            name; without it, the merged weights.

    Raises:
        TrainingDiverged: The loss or the gradient is not a finite number.
        EnvironmentProblem: Memory runs out with one sequence at a time, or the folder cannot be written.
    """
    reporter = reporter or SilentReporter()
    max_length = min(recipe.max_length, model.backbone.context_length)
    encoded = encode_examples(examples, tokenizer, max_length, reporter, chat_template=chat_template)
    order = DataOrder(len(encoded), recipe.batch_size, recipe.steps, seed)
    packed = any(not example.prompt for example in examples)  # the number of packed sequences is known only now
    if packed and len(encoded) < (wanted := recipe.steps * recipe.batch_size):
        reporter.line(f"There are {len(encoded)} packed training sequences, but {wanted} are wanted: they repeat.")
    if processes.current_group().is_main_process:
        with atomic.writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        Record(folder).write("data", describe(encoded, order))
    # Before adapters get their initial values, which are drawn.
    set_seed(seed)
    training = _Training(model, encoded, order, tokenizer, recipe, method_learning_rate, folder, reporter)
    try:
        training.run(curves or Tracking(), pretrained)
    finally:
        training.count.close()


class _Training:
    """One training: its fixed parts, and the steps."""

    def __init__(
        self,
        model: AdaptiveModel,
        encoded: Sequence[EncodedExample],
        order: DataOrder,
        tokenizer: PreTrainedTokenizerBase,
        recipe: TrainRecipe,
        method_learning_rate: float | None,
        folder: Path,
        reporter: Reporter,
    ) -> None:
        self.model, self.encoded, self.order = model, encoded, order
        self.tokenizer, self.pad_id = tokenizer, padding_id(tokenizer)
        self.recipe, self.folder, self.reporter = recipe, folder, reporter
        self.device = next(model.parameters()).device
        self.processes = processes.current_group()
        lora = recipe.lora if recipe.steps and not model.method.freezes_backbone else None
        self.adapters = None if lora is None else Adapters(model.backbone_model, lora)
        model.gradient_checkpointing = recipe.gradient_checkpointing
        fully_sharded = recipe.parallel == "fsdp" and not self.processes.is_single
        self.training = DistributedTraining(model, self.processes, fully_sharded=fully_sharded)
        groups = model.parameter_groups(recipe.learning_rate, method_learning_rate)
        if not groups:
            raise UsageError(
                f"A training needs trainable parameters, got a {model.spec} with all parameters frozen. Call "
                f"requires_grad_(True) on those to train; a method that needs no training says trains = False."
            )
        self.optimizer = torch.optim.AdamW(
            groups, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay, fused=True
        )
        # The schedule sets `lr` of each group at every step, so the peaks are kept here.
        self.peak_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self.accumulation, self.micro_batches = recipe.accumulation, MicroBatches(model)
        self.count = FlopCount(model, model.backbone)
        self.log_path = folder / TRAINING_LOG

    def run(self, curves: Tracking, pretrained: Pretrained | None) -> None:
        """Run all remaining steps, then write the final checkpoint."""
        (done, lines), total = self._resume(), len(self.order)
        self.model.train()
        start_s = time.perf_counter()
        if self.processes.is_main_process:
            atomic.write_text(self.log_path, lines)
        with (
            self.reporter.task(f"train {self.model.spec}", total, done) as task,
            curves.begun(done) if self.processes.is_main_process else nullcontext(()) as trackers,
        ):
            for step in range(done, total):
                entry = self._step(step)
                if self.processes.is_main_process:
                    # Raises if another process has taken the record over: the log is then no longer ours.
                    atomic.append_text(self.log_path, json.dumps(entry) + "\n")
                # After the log, which is what a resumed training goes by.
                for tracker in trackers:
                    tracker.log(_curves(entry), step=step + 1)
                due = (step + 1) % self.recipe.checkpoint_every == 0
                # The leader's request to stop counts for all processes. After the last step `_finish` writes the model.
                if (due or self.processes.gather(stopping.requested())[0]) and step + 1 < total:
                    self._save(step + 1)
                self.reporter.emit(TrainingStep(str(self.folder)))
                task.advance(1, loss=entry["loss"])
        self._finish(total - done, time.perf_counter() - start_s, pretrained)

    def _step(self, step: int) -> dict[str, Any]:
        """Run one optimizer step; returns its entry of the log."""
        factor = learning_rate_factor(self.recipe.decay, step, self.recipe.warmup_steps, len(self.order))
        rate = self.recipe.learning_rate * factor  # of the backbone
        for group, peak in zip(self.optimizer.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak * factor
        self.model.begin_step(step + 1, len(self.order))
        self.optimizer.zero_grad()
        loss = self._loss([self.encoded[index] for index in self.order[step]], step)
        self._check_finite("loss", loss.loss, step, rate)
        norm = float(whole(torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm)))
        self._check_finite("gradient norm", norm, step, rate)
        self.optimizer.step()
        entry = {"step": step + 1, "lr": rate, "loss": loss.loss, "terms": loss.terms, "tokens": loss.tokens}
        return entry | {"gradient_norm": norm}

    def _loss(self, batch: Sequence[EncodedExample], step: int) -> StepLoss:
        """Compute loss and gradient of a step; when memory runs out, repeat it with micro-batches half as large."""
        macs = self.count.macs
        while True:
            self.count.macs = macs  # a pass that ran out of memory does not count
            parts = split(batch, self.accumulation)
            if self.processes.is_single:  # several processes must cut alike, whatever memory each has left
                parts = [piece for part in parts for piece in self.micro_batches.cut(part)]
            keep_blocks()
            loss = accumulate(self.training, parts, self.pad_id, self.recipe.precision)
            give_back()
            if loss is not None:
                return loss
            if not self.processes.is_single:  # the other processes wait for this one's rows, so it cannot cut anew
                raise EnvironmentProblem(
                    f"Training {self.model.spec} in {self.processes.count} processes needs memory for its micro-batches"
                    f", but {self.device} ran out at step {step + 1}. Raise train.accumulation, or set "
                    f"train.parallel=fsdp."
                )
            if len(parts) == len(batch):
                raise EnvironmentProblem(
                    f"Training {self.model.spec} needs memory for at least one sequence of {self.recipe.max_length} "
                    f"tokens, but {self.device} ran out at step {step + 1}. Lower train.max_length, set "
                    f"train.precision=bf16, or choose a smaller --model."
                )
            # Stays so for all later steps, and for a resumed training.
            self.accumulation = min(2 * self.accumulation, len(batch))
            self.micro_batches.shrink()
            self.reporter.line(
                f"train {self.model.spec}: out of memory at step {step + 1}; the step is repeated in "
                f"{self.accumulation} micro-batches (the loss still counts every token alike)"
            )

    def _check_finite(self, what: str, value: float, step: int, rate: float) -> None:
        if math.isfinite(value):
            return
        advice = (
            f" with learning rate {rate:.3g}. Lower train.learning_rate or raise train.warmup_steps"
            f"{', or set train.precision=fp32' if self.recipe.precision == 'bf16' else ''}."
        )
        if step == 0:  # no weight was changed yet, so the learning rate is not the cause
            advice = (
                ", before any weight was changed: a method scales a branch by such a number or has such a loss, or the "
                "model's weights hold one. Try `adaptive-bench check` on it."
            )
        raise TrainingDiverged(
            f"Training needs a finite {what}, but {self.model.spec} got {value} at step {step + 1} of "
            f"{len(self.order)}{advice}"
        )

    def _macs(self) -> int:
        """MACs of all processes in all steps."""
        return sum(self.processes.gather(self.count.macs))

    def _resume(self) -> tuple[int, str]:
        """Resume from the newest checkpoint; returns the number of finished steps and their lines of the log."""
        newest = resume.newest(self.folder / RESUME_FOLDER)
        if newest is None:
            return 0, ""
        progress = resume.restore(newest, self.model, self.optimizer)
        self.accumulation = progress.accumulation
        self.micro_batches.keep_to(progress.usable)
        # The sum over all processes: only one of them goes on from it.
        self.count.macs = progress.macs if self.processes.is_main_process else 0
        # The log may be ahead of the checkpoint: lines of steps that are repeated are cut off.
        text = self.log_path.read_text(encoding="utf-8") if self.processes.is_main_process else ""
        self.reporter.line(f"train {self.model.spec}: resumed after step {progress.step} of {len(self.order)}")
        return progress.step, "".join(text.splitlines(keepends=True)[: progress.step])

    def _save(self, steps_done: int) -> None:
        writes = self.processes.is_main_process
        if writes:
            atomic.sync(self.log_path)  # first, so that a checkpoint never has more steps than the log
        progress = resume.Progress(steps_done, self.accumulation, self._macs(), self.micro_batches.usable)
        resume.save(self.folder / RESUME_FOLDER, progress, self.model, self.optimizer, writes=writes)

    def _finish(self, steps: int, elapsed_s: float, pretrained: Pretrained | None) -> None:
        macs = self._macs()
        self.training.gather_weights()
        self.model.spread = None
        if not self.processes.is_main_process:
            return
        timing = {"steps": steps, "train_s": elapsed_s, "device": str(self.device), "threads": torch.get_num_threads()}
        atomic.sync(self.log_path)
        # Costs first: the checkpoint's appearance says that the training, and so its record, is complete.
        record = Record(self.folder)
        record.write("timing", timing)
        read = (self.encoded[index] for step in range(len(self.order)) for index in self.order[step])
        cost = {
            "tokens": sum(len(one.token_ids) for one in read),
            "flops": 2.0 * macs,
            "parameters_added": sum(parameter.numel() for parameter in self.model.method.parameters()),
        }
        record.write("cost", cost)
        self.model.eval()
        named = None if self.adapters is None else pretrained
        # Saved with the name of its backbone, adapters stay apart; otherwise the merged weights are saved.
        if self.adapters is not None and named is None:
            self.adapters.merge()
        with atomic.new_folder(self.folder / CHECKPOINT_FOLDER) as temporary:
            self.model.save_pretrained(temporary, tokenizer=self.tokenizer, pretrained=named, adapters=self.adapters)
        # In memory too, so that whoever goes on with the model has plain linear maps.
        if self.adapters is not None and named is not None:
            self.adapters.merge()
        # Last: a kill before this leaves only a folder that nobody needs.
        atomic.remove(self.folder / RESUME_FOLDER)


def learning_rate_factor(
    decay: Literal["linear_end", "cosine"], step: int, warmup_steps: int, total_steps: int
) -> float:
    """Share of the peak learning rate at an optimizer step, counted from 0: a linear warm-up, then a plateau with a
    linear end, or a cosine; both end at zero and stay there.

    `linear_end` keeps the peak for most of the time in which training targets move (they reach their end after 70 % of
    the steps, see `method.dial`), so that the rate is still large enough to learn at the target. Most papers use
    `cosine`.
    """
    # Over warmup + 1, so that the first step has a rate above 0 and the peak is first reached after the warm-up.
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if decay == "linear_end":
        falls_from = max(warmup_steps, _FALLS_FROM * total_steps)
        return min(1.0, max(0.0, (total_steps - step) / max(1.0, total_steps - falls_from)))
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return 0.5 * (1.0 + math.cos(math.pi * progress))
