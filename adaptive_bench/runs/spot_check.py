"""May records of other code be used? Their keys say so, as far as somebody raised a version where a number moved. So
part of one training and of one measured point is repeated with the code that is here now, and compared.

That takes seconds, and is done once for each change of the code. Nothing is done where the code is the same, comments,
docstrings and names of files aside (`code_digest`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_bench.code_digest import code_digest
from adaptive_bench.config import RunConfig
from adaptive_bench.errors import EnvironmentProblem, message_of
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.jobs.plugins import needs_own_process
from adaptive_bench.model.shuffled import standing_between
from adaptive_bench.model.timing.hardware import environment
from adaptive_bench.probed import stored_matrix
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.backbones import find_device
from adaptive_bench.runs.planning.memory import Memory
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.runs.work.calibrated import Calibrated
from adaptive_bench.runs.work.training import repeat_first_steps
from adaptive_bench.store import atomic, attempts
from adaptive_bench.store.digest import unsealed
from adaptive_bench.store.evaluations import Sample
from adaptive_bench.store.files import forget

FILE, ASIDE = "spot_checks.json", "records_of_other_code"
STEPS, DOCUMENTS = 2, 8
_UNKNOWN = "unknown"  # of records whose version did not say
# Of the first loss, as a share of it; processors and versions differ by more than the order of sums on one of them.
_ROUNDING, _ROUNDING_ELSEWHERE = {"fp32": 1e-5, "bf16": 1e-2}, {"fp32": 1e-4, "bf16": 1e-2}
_GRADIENT, _MORE = "gradient norm", 10  # which rounds so many times as much, and so do all values after a step
_SAME_SCORE = 1e-3  # of a document, as a share of it
_SAME_SHARE = 5e-3  # of the tokens of the calibration text that are skipped
_MADE_ON = ("torch", "transformers", "lm-eval", "device", "device_name")  # others round otherwise
_FLOORS = {
    (True, False): "training",
    (False, True): "evaluation or model",
    (True, True): "engine, method, backbone or model",
}

_Work = TrainingRun | DialEvaluation


def spot_check(whole: Plan, folder: Path, memory: Memory, reporter: Reporter) -> bool:
    """Check the finished records of a plan that other code made, unless that was done before. Where they are not alike
    they are put aside, so that they are made anew.

    Args:
        folder: Of the run; it remembers which changes of the code were checked.
        memory: Of the run: what it knows was finished with the code that is here now.

    Returns:
        Whether records were put aside.

    Raises:
        EnvironmentProblem: A process is at work in a record that was to be put aside.
    """
    known = _known(folder)
    changed: dict[str, list[_Work]] = {}
    works: list[_Work] = [*whole.trainings, *whole.sweeps]
    for work in works:
        if not memory.knows(work):
            for change in _changes(work):
                changed.setdefault(change, []).append(work)
    pending = sorted(changed.keys() - known, key=lambda change: len(changed[change]))
    covered: set[str] = set()
    unchecked: set[str] = set()
    for change in pending:  # a method's own first: its records may be of other code below it, too
        if change in covered:
            continue
        training, sweep = _pick(changed[change], whole)
        here = {change}.union(*(_changes(work) for work in (training, sweep) if work is not None))
        covered |= here
        try:
            in_training = [] if training is None else list(_moved_in_training(training, whole))
            in_point = [] if sweep is None else list(_moved_in_point(sweep))
        except EnvironmentProblem as error:  # a damaged model, say: no reason to refuse what was measured with it
            reporter.line(
                f"{len(changed[change])} record(s) are of other code and are used unchecked: {message_of(error)}"
            )
            unchecked |= here
            continue
        looked_at = [f"`{work}`" for work in (training, sweep) if work is not None]
        if moved := [*in_training, *in_point]:
            aside = whole.config.out / ASIDE / hashlib.sha256(change.encode()).hexdigest()[:8]
            count = _put_aside(whole, changed[change], aside)
            reporter.line(
                f"Records of other code are used where they are alike up to rounding, but repeating part of "
                f"{' and '.join(looked_at)} gave {'; '.join(moved)}. {count} record(s) of that code were moved to "
                f"{str(aside)!r} and are made anew. Whoever changed the code raises the version of "
                f"{_FLOORS[bool(in_training), bool(in_point)]} in adaptive_bench/source.py, or mends it."
            )
            return True
        reporter.line(
            f"{len(changed[change])} record(s) are of other code and are used: "
            + (f"part of {' and '.join(looked_at)} was repeated and is alike." if looked_at else "none can be checked.")
        )
    if pending:
        atomic.write_sealed(folder / FILE, {"alike": sorted((known | set(pending)) - unchecked)})
    return False


def _known(folder: Path) -> set[str]:
    try:
        return set(unsealed((folder / FILE).read_bytes())["alike"])
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _changes(work: _Work) -> list[str]:
    """In what the code that was at some work differs from that which is here now: in what all methods share, or in
    what is the method's own.
    """
    environment = work.record.read("env.json")
    if environment is None:
        return []
    made, now = environment.get("code", _UNKNOWN), code_digest(work.spec.name, _out(work))
    before, after = made.partition("."), now.partition(".")
    return [f"{before[part]}>{after[part]}" for part in (0, 2) if before[part] and before[part] != after[part]]


def _out(work: _Work) -> Path:
    training = work if isinstance(work, TrainingRun) else work.training
    return training.folder.parent.parent


def _pick(works: Iterable[_Work], whole: Plan) -> tuple[TrainingRun | None, DialEvaluation | None]:
    """A training and a sweep that can be repeated here, always the same ones of the same works."""
    ordered = sorted(works, key=lambda work: hashlib.sha256(work.folder.name.encode()).hexdigest())
    ours = [work for work in ordered if not _is_of_plugin(work, whole.config.tasks)]
    trainings = (work for work in ours if isinstance(work, TrainingRun) and _can_be_repeated(work))
    sweeps = (work for work in ours if isinstance(work, DialEvaluation) and _can_be_asked(work))
    return next(trainings, None), next(sweeps, None)


def _is_of_plugin(work: _Work, tasks: Sequence[str]) -> bool:
    """Whether it is done in a process of its own, and this one loads none of its code."""
    tasks = (work.task,) if isinstance(work, DialEvaluation) else tasks
    foreign = needs_own_process(work.spec.name) or any(needs_own_process(task, "tasks") for task in tasks)
    under = work.training if isinstance(work, DialEvaluation) else work.base
    return foreign or (under is not None and _is_of_plugin(under, tasks))


def _can_be_repeated(training: TrainingRun) -> bool:
    has_base = training.base is None or training.base.checkpoint.is_dir()
    return bool(training.steps) and has_base and (training.folder / "train.jsonl").is_file()


def _can_be_asked(sweep: DialEvaluation) -> bool:
    """Whether its model is here, and answers a document alike whatever else is asked."""
    causality = stored_matrix(sweep.spec.name).get(str(sweep.spec), {}).get("causality")
    alone = causality != "C2" if causality is not None else sweep.spec.semantics == "bench"
    return alone and sweep.training.checkpoint.is_dir() and bool(sweep.record.savings())


def _moved_in_training(training: TrainingRun, whole: Plan) -> Iterator[str]:
    """Losses of the first steps that are others now."""
    with (training.folder / "train.jsonl").open(encoding="utf-8") as stream:
        said = [json.loads(line) for line, _ in zip(stream, range(STEPS), strict=False)]
    rounding = (_ROUNDING if _is_made_here(training, whole.config) else _ROUNDING_ELSEWHERE)[
        whole.config.train.precision
    ]
    for before, now in zip(said, repeat_first_steps(training, whole.config, STEPS), strict=False):
        values = {"tokens": (before["tokens"], now["tokens"]), "loss": (before["loss"], now["loss"])}
        values |= {_GRADIENT: (before["gradient_norm"], now["gradient_norm"])}
        values |= {f"loss term {name}": (value, now["terms"].get(name)) for name, value in before["terms"].items()}
        for name, (old, new) in values.items():
            share = rounding * (_MORE if name == _GRADIENT else 1) * (_MORE if before["step"] > 1 else 1)
            if new is None or not math.isclose(old, new, rel_tol=share, abs_tol=share * abs(before["loss"])):
                yield f"{name} {new} at step {before['step']} where the record has {old}"


def _moved_in_point(sweep: DialEvaluation) -> Iterator[str]:
    """What the first documents of a measured point, and its calibration, are otherwise now."""
    savings, recipe = sweep.record.savings(), sweep.config.evaluation
    asked = savings[len(savings) // 2]
    calibrated = Calibrated(sweep)
    calibrated.calibrate([asked], SilentReporter())
    skipped = _skipped(sweep.record.read("calibration.json"), asked)
    for old, new in zip(skipped, _skipped(calibrated.calibration([asked], None), asked), strict=False):
        if abs(old - new) > _SAME_SHARE:
            yield f"{new:.2%} of the calibration text skipped at {asked:.0%} where the record has {old:.2%}"
    calibrated.model.dial = calibrated.model.method.dial_for(asked)
    bank = calibrated.collect_decisions(SilentReporter()) if sweep.variant == "shuffled" else None
    with standing_between(calibrated.model, bank):
        _, now = evaluate(
            calibrated.model,
            calibrated.tokenizer,
            sweep.task,
            data_dir=sweep.config.data_dir,
            split=sweep.split,
            limit=min(DOCUMENTS, recipe.limit or DOCUMENTS),
            num_fewshot=recipe.num_fewshot,
            batch_size=recipe.batch_size,
            chat_template=sweep.config.chat_template,
        )
    said = {sample.doc: sample for sample in sweep.record.samples(asked)}
    others = [sample.doc for sample in now if sample.doc in said and not _alike(said[sample.doc], sample)]
    if len(others) > (0 if _is_made_here(sweep, sweep.config) else 1):  # nearly as likely answers change places
        first = next(sample for sample in now if sample.doc == others[0])
        yield (
            f"other answers to {len(others)} of {len(now)} documents at {asked:.0%}, the first {first.output!r:.60} "
            f"where the record has {said[first.doc].output!r:.60}"
        )


def _skipped(calibration: Mapping[str, Any] | None, asked: float) -> list[float]:
    dials: Sequence[Mapping[str, Any]] = [] if calibration is None else calibration["dials"]
    return [dial["realised"] for dial in dials if dial.get("saving") == asked and "realised" in dial]


def _alike(before: Sample, now: Sample) -> bool:
    if isinstance(before.output, float) and isinstance(now.output, float):
        same = math.isclose(before.output, now.output, rel_tol=_SAME_SCORE, abs_tol=_SAME_SCORE)
    else:
        same = before.output == now.output
    scores = before.scores.items()
    return same and all(
        abs(score - now.scores.get(name, math.inf)) <= _SAME_SCORE * max(1, abs(score)) for name, score in scores
    )


def _is_made_here(work: _Work, config: RunConfig) -> bool:
    """Whether with the versions and on a device as they are here."""
    made, now = work.record.read("env.json") or {}, environment(find_device(config.device))
    return all(one.get(name) == now[name] for one in (made, *made.get("before", ())) for name in _MADE_ON)


def _put_aside(whole: Plan, works: Sequence[_Work], aside: Path) -> int:
    """Move records, and those of trainings that start from them, with all that was measured of them."""
    moved = {work.folder: work for work in works}
    for training in whole.trainings:  # what a training starts from comes before it
        if training.base is not None and training.base.folder in moved:
            moved[training.folder] = training
    folders = [folder for folder in moved if folder.parent.parent not in moved and folder.is_dir()]
    held = [place for folder in folders for place in (folder, *folder.glob("eval/*")) if attempts.is_held(place)]
    if held:
        raise EnvironmentProblem(
            f"Records of other code are not alike and are to be made anew, but a process is at work in "
            f"{str(held[0])!r}. Wait for it or end it, and give the same command again."
        )
    with atomic.writable(aside):
        for folder in folders:
            target = aside / folder.relative_to(whole.config.out / "records")
            while target.exists():
                target = target.with_name(f"{target.name}.before")
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
            forget(folder)
    return len(moved)
