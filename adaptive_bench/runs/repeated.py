"""Is part of a record what the code that is here now makes of it? Part of some work is repeated, and compared.

Of a training: its data, its order, its rate and tokens of every step, what it was priced at, and its first steps. Of an
evaluation, at one measured point: how recorded answers are asked and scored, without a model; the end of the dial; what
is skipped and saved of held-out text; and the answers to the first documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adaptive_bench.config import RunConfig
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.replay import replay
from adaptive_bench.model.shuffled import standing_between
from adaptive_bench.model.timing.hardware import environment
from adaptive_bench.progress import SilentReporter
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.recorded_answers import not_replayed
from adaptive_bench.runs.work.calibrated import Calibrated
from adaptive_bench.runs.work.training import Repeated, repeat_first_steps
from adaptive_bench.store.evaluations import Sample

STEPS, WITHIN_S = range(2, 7), 2.0  # further steps of a training only where they are cheap
DOCUMENTS, REPLAYED = 8, 500
CHOOSING = 32  # documents where the likeliest choice alone is on record: most small changes leave it, and it is cheap
# Of the first loss, as a share of it; processors and versions differ by more than the order of sums on one of them.
_ROUNDING, _ROUNDING_ELSEWHERE = {"fp32": 1e-5, "bf16": 1e-2}, {"fp32": 1e-4, "bf16": 1e-2}
_GRADIENT, _MORE = "gradient norm", 10  # which rounds so many times as much, and so do all values after a step
_SAME_SCORE = 1e-3  # of a document, as a share of it
_SAME_SHARE = 5e-3  # of the tokens of the calibration text that are skipped
_SAME_SAVING, _SAME_SAVING_ELSEWHERE = 5e-4, 5e-3  # where nearly equal scores of tokens change places
_PLANNED = 1e-9  # of numbers that are worked out from the recipe
_MADE_ON = ("torch", "transformers", "lm-eval", "device", "device_name")  # others round otherwise
_DATA = ("examples", "tokens", "loss_tokens", "order_sha256")
_ASKED = {
    "documents_sha256": "documents",
    "gold_sha256": "right answers",
    "prompts_sha256": "prompts",
    "settings_sha256": "settings of what is to be written",
}


def moved_in_training(training: TrainingRun, config: RunConfig) -> Iterator[str]:
    """What a training has on record that is otherwise now, as texts."""
    again = repeat_first_steps(training, config, STEPS, WITHIN_S)
    said = [json.loads(line) for line in (training.folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    is_made_here = _is_made_here(training, config)
    yield from _moved_before_training(training, again, is_made_here=is_made_here)
    for before, now in zip(said, again.steps.planned, strict=False):
        for name, text in (("lr", "learning rate"), ("tokens", "tokens")):
            if not math.isclose(before[name], now[name], rel_tol=_PLANNED):
                yield f"{text} {now[name]} at step {before['step']} where the record has {before[name]}"
                return
    rounding = (_ROUNDING if is_made_here else _ROUNDING_ELSEWHERE)[config.train.precision]
    for before, now in zip(said, again.steps.lines, strict=False):
        values = {"loss": (before["loss"], now["loss"]), _GRADIENT: (before["gradient_norm"], now["gradient_norm"])}
        values |= {f"loss term {name}": (value, now["terms"].get(name)) for name, value in before["terms"].items()}
        for name, (old, new) in values.items():
            share = rounding * (_MORE if name == _GRADIENT else 1) * (_MORE if before["step"] > 1 else 1)
            if new is None or not math.isclose(old, new, rel_tol=share, abs_tol=share * abs(before["loss"])):
                yield f"{name} {new} at step {before['step']} where the record has {old}"


def _moved_before_training(training: TrainingRun, again: Repeated, *, is_made_here: bool) -> Iterator[str]:
    """Data, price and size."""
    data, cost = training.record.read("data.json") or {}, training.record.read("cost.json") or {}
    for name in _DATA:
        if name in data and data[name] != again.steps.data[name]:
            yield f"{name} {again.steps.data[name]!s:.16} of the training text where the record has {data[name]!s:.16}"
    if cost.get("parameters_added", again.parameters_added) != again.parameters_added:
        yield f"{again.parameters_added} parameters added where the record has {cost['parameters_added']}"
    target, saving = training.record.read("target.json"), _same_saving(is_made_here=is_made_here)
    if target is not None and again.target is not None:
        priced: dict[str, tuple[float, float | None]] = {"skipped tokens": (target["tokens"], again.target.tokens)}
        priced |= {f"saved {axis}": (value, again.target.priced.get(axis)) for axis, value in target["priced"].items()}
        for name, (old, new) in priced.items():
            if new is None or abs(old - new) > saving:
                yield f"{name} {new} as the price of the target where the record has {old}"


def moved_in_point(sweep: DialEvaluation) -> Iterator[str]:
    """What a measured point has on record that is otherwise now, as texts."""
    calibrated = Calibrated(sweep)
    model = calibrated.model
    savings = sweep.record.savings()
    asked = savings[len(savings) // 2]
    yield from _moved_in_scoring(sweep, asked)
    if (end := sweep.record.max_saved_tokens) is not None and abs(end - model.method.max_saving) > _SAME_SHARE:
        yield f"the dial ends at {model.method.max_saving} saved tokens where the record has {end}"
    calibrated.calibrate([asked], SilentReporter())
    yield from _moved_in_savings(sweep, calibrated, asked)
    model.dial = model.method.checked_dial(asked)
    bank = calibrated.collect_decisions(SilentReporter()) if sweep.variant == "shuffled" else None
    recipe = sweep.config.evaluation
    said = {sample.doc: sample for sample in sweep.record.samples(asked)}
    point = sweep.record.point(asked)
    overlong = (point.data or {}).get("overlong", ()) if point is not None else ()  # worked examples are drawn in turn
    most = CHOOSING if any(isinstance(sample.output, int) for sample in said.values()) else DOCUMENTS
    with standing_between(model, bank):
        _, now = evaluate(
            model,
            calibrated.tokenizer,
            sweep.task,
            data_dir=sweep.config.data_dir,
            split=sweep.split,
            # Draws hang on who is in a batch: of sampled answers all are asked.
            documents=_up_to(sorted(said)[: None if recipe.temperature else most], overlong),
            chat_template=sweep.config.chat_template,
            **recipe.asking,
        )
    others = [sample.doc for sample in now if sample.doc in said and not _alike(said[sample.doc], sample)]
    # Elsewhere nearly as likely answers change places.
    if len(others) > (0 if _is_made_here(sweep, sweep.config) else max(1, len(now) // DOCUMENTS)):
        first = next(sample for sample in now if sample.doc == others[0])
        yield (
            f"other answers to {len(others)} of {len(now)} documents at {asked:.0%}, the first {first.output!r:.60} "
            f"where the record has {said[first.doc].output!r:.60}"
        )


def _up_to(documents: list[int], others: Iterable[int]) -> list[int]:
    return sorted({*documents, *(one for one in others if one < documents[-1])})


def _moved_in_scoring(sweep: DialEvaluation, asked: float) -> Iterator[str]:
    """Prompts, right answers, and scores of what is on record."""
    before = sweep.record.samples(asked)[:REPLAYED]
    recipe, point = sweep.config.evaluation, sweep.record.point(asked)
    now, data = replay(
        sweep.task, before, data_dir=sweep.config.data_dir, num_fewshot=recipe.num_fewshot, split=sweep.split
    )
    others = [one for one, again in zip(before, now, strict=True) if not _is_scored_alike(one, again)]
    if others:
        again = next(sample for sample in now if sample.doc == others[0].doc)
        yield (
            f"other scores of the same {len(others)} of {len(now)} answers at {asked:.0%}, the first "
            f"{again.answers or again.scores} where the record has {others[0].answers or others[0].scores}"
        )
    known = point.data if point is not None and point.data is not None and point.docs == len(before) else {}
    for name, text in _ASKED.items():
        if name in known and known[name] != data.get(name) and name not in not_replayed(sweep.config):
            yield f"other {text} of {sweep.task}"


def _is_scored_alike(before: Sample, now: Sample) -> bool:
    if isinstance(before.output, str):
        return before.answers == now.answers and _are_close(before.scores, now.scores)
    names = before.scores.keys() & now.scores.keys()  # by length, say, only the model itself could score
    best = isinstance(before.output, int)
    accuracies = {name: before.scores[name] for name in names if name.startswith("acc,") and best}
    return str(before.target) == str(now.target) and _are_close(accuracies, now.scores)


def _moved_in_savings(sweep: DialEvaluation, calibrated: Calibrated, asked: float) -> Iterator[str]:
    """What is skipped of the calibration text, and saved of some of it."""
    skipped = _skipped(sweep.record.read("calibration.json"), asked)
    for old, new in zip(skipped, _skipped(calibrated.calibration([asked], None), asked), strict=False):
        if abs(old - new) > _SAME_SHARE:
            yield f"{new:.2%} of the calibration text skipped at {asked:.0%} where the record has {old:.2%}"
    known = (sweep.record.read("behaviour.json") or {}).get("saved", {}).get(f"{asked:g}", {})
    now = calibrated.held_out_savings([asked])[f"{asked:g}"] if known else {}
    saving = _same_saving(is_made_here=_is_made_here(sweep, sweep.config))
    for axis, old in known.items():
        if (old is None) != (now[axis] is None) or abs((old or 0.0) - (now[axis] or 0.0)) > saving:
            yield f"{now[axis]} saved {axis} of held-out text at {asked:.0%} where the record has {old}"


def _same_saving(*, is_made_here: bool) -> float:
    return _SAME_SAVING if is_made_here else _SAME_SAVING_ELSEWHERE


def _skipped(calibration: Mapping[str, Any] | None, asked: float) -> list[float]:
    dials: Sequence[Mapping[str, Any]] = [] if calibration is None else calibration["dials"]
    return [dial["realised"] for dial in dials if dial.get("saving") == asked and "realised" in dial]


def _alike(before: Sample, now: Sample) -> bool:
    if isinstance(before.output, float) and isinstance(now.output, float):
        same = math.isclose(before.output, now.output, rel_tol=_SAME_SCORE, abs_tol=_SAME_SCORE)
    else:
        same = before.output == now.output
    return same and before.answers == now.answers and _are_close(before.scores, now.scores)


def _are_close(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return all(
        abs(score - now.get(name, math.inf)) <= _SAME_SCORE * max(1, abs(score)) for name, score in before.items()
    )


def _is_made_here(work: TrainingRun | DialEvaluation, config: RunConfig) -> bool:
    """Whether with the versions and on a device as they are here."""
    made, now = work.record.read("env.json") or {}, environment(find_device(config.device))
    return all(one.get(name) == now[name] for one in (made, *made.get("before", ())) for name in _MADE_ON)
