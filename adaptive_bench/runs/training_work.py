"""Trains one unit of work and stores its checkpoint; a training that was interrupted continues.

Every method is trained towards the same saving, on the axis by which methods are matched. A method's schedule ends at a
share of skipped token-branches. Equal shares save different amounts of FLOPs, since for example a vector gate must
first save its own cost. So before training, the untrained method is priced on held-out training text: this finds the
share at which the ledger measures the wanted saving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from adaptive_bench import processes, stopping
from adaptive_bench.backbone.weights import library_versions
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.hardware import environment, find_batch_size
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.saving import Pretrained
from adaptive_bench.progress import Event, Line, Reporter, SilentReporter, TaskAdvanced, TaskStarted
from adaptive_bench.recipe import FlopAxis
from adaptive_bench.runs.backbone_source import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.training_text import as_planned, draw_flop_calibration_text, draw_training
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.store.keys import check_code, commit
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.manifest import sparing
from adaptive_bench.store.records import Record
from adaptive_bench.tables.comparability import FACTS
from adaptive_bench.training.encoding import calibration_batches, encode_examples, padding_id
from adaptive_bench.training.loop import RESUME_FOLDER, Tracking, train

_PRICING_BATCH = 16  # sequences
_PRICING_TOKENS = 5_000  # about; the text is read up to 25 times, and costs hardly differ from text to text
_TOLERANCE = 0.002  # of a target's saving, absolute
_MAX_POINTS = 7
_FIRST_STEP = 0.05  # the first point asks for this much more than the wanted saving, to pay for the method's own cost


def build_model(training: TrainingRun, config: RunConfig) -> AdaptiveModel:
    """The model of a training before its first step, on the run's device."""
    if training.base is None:
        backbone = backbone_of(training, config).load_model()
    else:
        backbone = AdaptiveModel.from_pretrained(training.base.checkpoint, calibration=None).backbone_model
    model = AdaptiveModel.build(backbone, training.spec, seed=training.seed, **sparing(training.content))
    return model.to(find_device(config.device))


def backbone_of(training: TrainingRun, config: RunConfig) -> BackboneSource:
    """The pretrained model, as it was when the run was planned."""
    return planned_backbone(config.model, training.content["backbone"])


class RecordedReporter(Reporter):
    """Adds what the work is about to every line and task it passes on, and keeps the lines in the record's log.

    It also stops work that was asked to stop, after a step that is counted, so that finished steps are kept.
    """

    def __init__(self, reporter: Reporter, record: Record, about: str) -> None:
        self._reporter, self._record, self._about = reporter, record, about

    def emit(self, event: Event) -> None:
        """See `Reporter`."""
        match event:
            case Line(text):
                self._record.log(text)
                event = Line(f"{self._about}: {text}")
            case TaskStarted():
                event = replace(event, label=f"{self._about}: {event.label}")
        self._reporter.emit(event)
        if isinstance(event, TaskAdvanced):
            stopping.check()


@contextmanager
def recorded(work: TrainingRun | DialEvaluation, config: RunConfig, reporter: Reporter) -> Iterator[Reporter]:
    """Keep the state of some work on disk, however the block ends, unless another process has taken the work over.

    The block reports through the reporter that it is given.
    """
    record, seed = work.record, work.seed if isinstance(work, TrainingRun) else work.training.seed
    check_code(work.spec.name, "training" if isinstance(work, TrainingRun) else "evaluation", work.content["code"])
    record.begin(work.content)
    used = library_versions(config.evaluation.quantize) if isinstance(work, DialEvaluation) else {}
    record.write("env", _environments(record, find_device(config.device)) | used | commit())
    try:
        yield RecordedReporter(reporter, record, f"seed {seed}")
    except Superseded:  # the record is another process's by now
        raise
    except Exception as error:
        record.fail(error)
        raise
    except BaseException:  # stopped by the user or a scheduler: the same command continues
        record.move("partial")
        raise
    record.move("done")


def _environments(record: Record, device: torch.device) -> dict[str, Any]:
    """Versions and hardware of this process; in `before`, those of the processes whose work it continues."""
    about, known = environment(device), record.read("env")
    goes_on = (record.folder / RESUME_FOLDER).is_dir() or bool(record.read("points"))
    if known is None or not goes_on:
        return about
    earlier = [{name: one.get(name) for name in FACTS} for one in (*known.get("before", ()), known, about)]
    # Each once, in the order in which they worked, without those equal to this process.
    before = [one for place, one in enumerate(earlier) if one != earlier[-1] and one not in earlier[:place]]
    return about | ({"before": before} if before else {})


def set_target(
    model: AdaptiveModel, training: TrainingRun, config: RunConfig, tokenizer: Any, reporter: Reporter
) -> None:
    """Turn the target saving into the end of the method's schedule, and write the result to the record."""
    assert training.target is not None
    max_length = min(config.train.max_length, model.backbone.context_length)
    examples = as_planned(draw_flop_calibration_text(config, training.seed), training.content["target"]["text"])
    text = encode_examples(examples, tokenizer, max_length, SilentReporter(), chat_template=config.chat_template)
    text = text[:: -(-sum(len(one.token_ids) for one in text) // _PRICING_TOKENS)]  # evenly, so that all tasks stay
    saving, axis = training.target, training.content["target"]["axis"]

    # Begun anew with smaller batches if memory runs out.
    def at(batch_size: int) -> Target:
        batches = calibration_batches(text, padding_id(tokenizer), batch_size, model.backbone_model.device)
        return price(model, batches, saving, axis)

    target, _ = find_batch_size(f"price {training.spec}", at, _PRICING_BATCH, reporter)
    model.method.target = target.tokens
    training.record.write("target", asdict(target))


@dataclass(frozen=True)
class Target:
    """What the schedule of a training ends at.

    Attributes:
        saving, axis: The wanted saving, and its axis.
        tokens: Share of token-branches to skip at the end of training.
        priced: The saving on each axis at this share, measured before training. On `axis` it is smaller than wanted if
            the dial ends before.
    """

    axis: FlopAxis
    saving: float
    tokens: float
    priced: dict[str, float]


@torch.no_grad()
def price(model: AdaptiveModel, batches: Sequence[dict[str, Tensor]], saving: float, axis: FlopAxis) -> Target:
    """Find the share of skipped token-branches that gives a saving on an axis. The model stays unchanged, apart from
    what its method measures before training (`Method.prepare_training`).

    Args:
        batches: Held-out training text: `input_ids`, `attention_mask`, `continuation_mask`, each [B, S].
        saving: Wanted share of the dense model's compute.
    """
    end = model.method.max_saving
    was_training = model.training
    model.eval()
    try:
        model.prepare_training(batches)
        # On the axes `tokens` and `layers`, the share asked for is a good first guess of the saving.
        asked = min(end, saving if axis in ("tokens", "layers") else saving + _FIRST_STEP)
        # At 0 the saving is minus the method's own cost; with the guess it gives the first slope.
        points = [_savings_at(model, batches, 0.0), _savings_at(model, batches, asked)]
        while len(points) < _MAX_POINTS:
            priced = points[-1][axis]
            # On `tokens` the wanted saving is the share itself. At the end of the dial nothing more can be asked for.
            if axis == "tokens" or abs(priced - saving) <= _TOLERANCE or (asked >= end and priced < saving):
                break
            least, most = (side(points, key=lambda point: point["tokens"]) for side in (min, max))
            tokens_per_saving = (most["tokens"] - least["tokens"]) / max(most[axis] - least[axis], 1e-3)
            asked = min(end, max(0.0, asked + (saving - priced) * tokens_per_saving))
            points.append(_savings_at(model, batches, asked))
        closest = min(points, key=lambda point: abs(point[axis] - saving))
        return Target(axis, saving, min(saving, end) if axis == "tokens" else closest["tokens"], closest)
    finally:
        model.dial = model.method.dial.skip_nothing
        model.forget_calibration()
        model.reset_ledger()
        model.train(was_training)


def _savings_at(model: AdaptiveModel, batches: Sequence[dict[str, Tensor]], saved_tokens: float) -> dict[str, float]:
    """The saving on each axis if the dial is set for a share of token-branches."""
    if saved_tokens > 0:
        model.calibrate(batches, [saved_tokens])
    model.dial = model.method.checked_dial(saved_tokens)
    model.reset_ledger()
    for batch in batches:
        # As decoding: with `paper` semantics MoD ranks the tokens of a prefill in place of using its thresholds.
        model(**batch, logits_to_keep=1, phase="decode")
    saved = model.compute_report()["saved"]
    return {axis: saved[axis] for axis in get_args(FlopAxis)}


def carry_out_training(training: TrainingRun, config: RunConfig, reporter: Reporter) -> None:
    """Carry out a training, unless it is finished; a process that is already at it is waited for.

    Raises:
        EnvironmentProblem: The training that it starts from is not finished.
    """
    if training.base is not None and not training.base.finished:
        raise EnvironmentProblem(f"it starts from `{training.base}`, which failed.")
    with exclusive(training.folder, str(training), reporter):
        if training.finished:  # by the process that was waited for
            return
        with recorded(training, config, reporter) as said:
            model, tokenizer = build_model(training, config), backbone_of(training, config).load_tokenizer()
            if training.target is not None:
                set_target(model, training, config, tokenizer, said)
            # Other processes build the model themselves, but have not priced the target nor measured on its text.
            buffers = model.method.named_buffers() if model.method.prepares_training else ()
            prepared = {name: value.cpu() for name, value in buffers}
            with processes.world().broadcast_job("train", training, config, model.method.target_of_all, prepared):
                _fit(model, training, config, tokenizer, said)


def _fit(model: AdaptiveModel, training: TrainingRun, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    # The precision of the plan, because the config may still say `auto`.
    planned = {"precision": training.content["recipe"]["precision"]} if training.steps else {"steps": 0}
    drawn = draw_training(config, training.seed, SilentReporter()) if training.steps else []
    text = as_planned(drawn, training.content["data"]["sha256"]) if training.steps else []
    name, title = training.folder.name, f"{training.spec}{training.about_target}, seed {training.seed}"
    about: dict[str, str | int | float] = {"method": str(training.spec), "seed": training.seed}
    about |= {"model": config.model, "record": name}
    of_adapters = config.train.lora is not None and training.base is None  # else the whole model is stored
    source = backbone_of(training, config) if of_adapters else None
    train(
        model,
        text,
        tokenizer,
        config.train.model_copy(update=planned),
        training.content["method_learning_rate"],
        seed=training.seed,
        folder=training.folder,
        reporter=reporter,
        curves=Tracking(config.track, name, title, config.out / "tracking", about),
        pretrained=None if source is None else Pretrained.at(source.location, source.revision),
        chat_template=config.chat_template,
    )


def train_as_worker(training: TrainingRun, config: RunConfig, target: float, prepared: dict[str, Tensor]) -> None:
    """Take part in a training that the main process has begun."""
    model = build_model(training, config)
    model.method.target = target
    model.method.load_state_dict(prepared, strict=False)  # buffers alone
    _fit(model, training, config, backbone_of(training, config).load_tokenizer(), SilentReporter())
