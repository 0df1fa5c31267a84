"""Trains one unit of work and stores its checkpoint; a training that was interrupted continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from adaptive_bench import processes, stopping
from adaptive_bench.backbone.weights import library_versions
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, Superseded
from adaptive_bench.model import AdaptiveModel
from adaptive_bench.model.hardware import environment, find_batch_size
from adaptive_bench.model.hub_models import Pretrained
from adaptive_bench.progress import Event, Line, Reporter, SilentReporter, TaskAdvanced, TaskStarted
from adaptive_bench.runs.backbone_source import BackboneSource, find_device, planned_backbone
from adaptive_bench.runs.training_text import as_planned, draw_flop_calibration_text, draw_training
from adaptive_bench.runs.work_units import DialEvaluation, TrainingRun
from adaptive_bench.store.keys import check_code, commit
from adaptive_bench.store.lock import exclusive
from adaptive_bench.store.manifest import sparing
from adaptive_bench.store.records import Record
from adaptive_bench.tables.comparability import FACTS
from adaptive_bench.training.encoding import calibration_batches, encode_examples, padding_id
from adaptive_bench.training.loop import RESUME_FOLDER, train
from adaptive_bench.training.target import Target, price
from adaptive_bench.training.tracking import Tracking

_PRICING_BATCH = 16  # sequences
_PRICING_TOKENS = 5_000  # about; the text is read up to 25 times, and costs hardly differ from text to text


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


def pretrained_of(training: TrainingRun, config: RunConfig) -> Pretrained | None:
    """The pretrained model that adapters are stored for; `None` if the whole model is stored."""
    if config.train.lora is None or training.base is not None:
        return None
    source = backbone_of(training, config)
    return Pretrained.at(source.location, source.revision)


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


def curves_of(training: TrainingRun, config: RunConfig) -> Tracking:
    """The trackers that show the curves of a training."""
    about: dict[str, str | int | float] = {"method": str(training.spec), "seed": training.seed}
    about |= {"model": config.model, "record": training.folder.name}
    title = f"{training.spec}{training.about_target}, seed {training.seed}"
    return Tracking(config.track, training.folder.name, title, config.out / "tracking", about)


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
    training.record.write("target", target.to_json())


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
            with processes.world().broadcast_job(
                "train", training, config, model.method.target_of_all, _prepared(model)
            ):
                _fit(model, training, config, tokenizer, said)


def _fit(model: AdaptiveModel, training: TrainingRun, config: RunConfig, tokenizer: Any, reporter: Reporter) -> None:
    # The precision of the plan, because the config may still say `auto`.
    planned = {"precision": training.content["recipe"]["precision"]} if training.steps else {"steps": 0}
    drawn = draw_training(config, training.seed, SilentReporter()) if training.steps else []
    text = as_planned(drawn, training.content["data"]["sha256"]) if training.steps else []
    train(
        model,
        text,
        tokenizer,
        config.train.model_copy(update=planned),
        training.content["method_learning_rate"],
        seed=training.seed,
        folder=training.folder,
        reporter=reporter,
        curves=curves_of(training, config),
        pretrained=pretrained_of(training, config),
        chat_template=config.chat_template,
    )


def _prepared(model: AdaptiveModel) -> dict[str, Tensor]:
    """What a method measured before its training: its buffers."""
    return {name: value.cpu() for name, value in model.method.named_buffers()} if model.method.prepares_training else {}


def train_as_worker(training: TrainingRun, config: RunConfig, target: float, prepared: dict[str, Tensor]) -> None:
    """Take part in a training that the main process has begun."""
    model = build_model(training, config)
    model.method.target = target
    model.method.load_state_dict(prepared, strict=False)  # buffers alone
    _fit(model, training, config, backbone_of(training, config).load_tokenizer(), SilentReporter())
