"""Does an entry hold? Some of its documents are asked again, of models trained as it says, and compared one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from scipy.stats import t as student_t

from adaptive_bench.config import RunConfig
from adaptive_bench.errors import UsageError
from adaptive_bench.evaluation.evaluate import evaluate
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.metric import TOLERATED_SHARE
from adaptive_bench.progress import Reporter, SilentReporter
from adaptive_bench.runs.planning.plan import plan
from adaptive_bench.runs.planning.works import DialEvaluation
from adaptive_bench.runs.work.calibrated import Calibrated
from adaptive_bench.runs.work.training import carry_out_training
from adaptive_bench.tables.document_values import document_values, is_pooled

_SAME_SCORE = 1e-3  # of a document whose score is no right or wrong, as a share of it
_SAME_SAVING = 0.005
_CERTAINTY = 0.99  # that the score of one more seed lies where it is looked for
_ROUNDING = 1e-9
_FEWEST_SEEDS = 3  # that say how far seeds lie apart
Verdict = Literal["holds", "alike", "differs", "unknown"]


@dataclass(frozen=True)
class Checked:
    """One measured point of an entry, measured again.

    Attributes:
        asked: Share of tokens it was asked to save.
        documents: How many were asked again.
        equal: How many have the score the entry says.
        claimed, found: Mean score of these documents in the entry, and now.
        claimed_saving, found_saving: Saved tokens, where all documents were asked again; else `None`.
        verdict: `holds`: the documents have the scores the entry says; `alike`: they have not, but their mean is one
            that another seed of the entry may have; `differs`; `unknown` where the entry has no scores by document.
        trained: Whether the model was trained anew for this, and not found trained.
    """

    method: str
    semantics: str
    task: str
    seed: int
    asked: float
    documents: int
    equal: int
    claimed: float | None
    found: float
    claimed_saving: float | None
    found_saving: float | None
    verdict: Verdict
    trained: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def verify(
    config: RunConfig,
    entries: Iterable[Mapping[str, Any]],
    *,
    saving: float = 0.15,
    documents: int = 32,
    tolerance: float = TOLERATED_SHARE,
    reporter: Reporter | None = None,
) -> list[Checked]:
    """Measure, for every method and task of an entry's first seed, the point next to a saving again.

    A training that is not under `config.out` is done first, as the entry's configuration says. A document's score may
    differ where two answers are nearly as likely and another machine rounds otherwise: a point holds if at most the
    tolerated share of its documents does. Rounding during a training adds up to another model, as another seed does: a
    point is alike if its mean lies in the 99 % prediction interval (Student's t) of the entry's seeds on the same
    documents, three seeds at least, or one document from their mean; and its saving so too, where that is compared.
    Methods that depend on the batch are asked in other batches than then, unless all documents are.

    Args:
        entries: Of an `answers.json`.
        documents: How many of the first documents are asked; all, where a metric is taken over all at once.
        tolerance: Share of documents whose score may differ.

    Raises:
        UsageError: The entry's configuration plans no such work: it is not what the answers were made with.
    """
    reporter = reporter or SilentReporter()
    entries = list(entries)
    sweeps = {_place(sweep): sweep for sweep in plan(config).sweeps if sweep.split == "test" and not sweep.variant}
    found = []
    trained: set[Path] = set()
    for entry in entries:
        if entry["seed"] != config.seeds[0]:
            continue
        place = _place_of(entry)
        if place not in sweeps:
            raise UsageError(
                f"Answers belong to the configuration beside them, but it plans no {place[0]} on {place[2]}. The entry "
                f"was put together from two runs; it cannot be verified."
            )
        sweep = sweeps[place]
        for training in reversed(sweep.training.chain):  # first things first
            if not training.finished:
                trained.add(training.folder)
            carry_out_training(training, config, reporter)
        anew = sweep.training.folder in trained
        seeds = [one for one in entries if _place_of(one)[:3] == place[:3] and one["target"] == entry["target"]]
        found.append(_again(sweep, entry, seeds, saving, documents, tolerance, reporter, trained=anew))
    return found


def _place_of(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["method"], entry["semantics"], entry["task"], entry["seed"], entry["target"]


def _place(sweep: DialEvaluation) -> tuple[Any, ...]:
    method = str(replace(sweep.spec, semantics="bench"))
    target = None if sweep.training.has_single_target else sweep.training.target
    return method, sweep.spec.semantics, sweep.task, sweep.training.seed, target


def _again(
    sweep: DialEvaluation,
    entry: Mapping[str, Any],
    seeds: Sequence[Mapping[str, Any]],
    saving: float,
    documents: int,
    tolerance: float,
    reporter: Reporter,
    *,
    trained: bool,
) -> Checked:
    point = _nearest(entry, saving)
    calibrated = Calibrated(sweep)
    calibrated.calibrate([point["asked"]], reporter)
    calibrated.model.dial = calibrated.model.method.checked_dial(point["asked"])
    recipe = sweep.config.evaluation
    known = len(entry["documents"])
    metric = find_task(sweep.task).metrics[0]
    evaluation, samples = evaluate(
        calibrated.model,
        calibrated.tokenizer,
        sweep.task,
        data_dir=sweep.config.data_dir,
        # Draws hang on who is in a batch: of sampled answers all are asked.
        documents=entry["documents"][: known if is_pooled(metric) or recipe.temperature else documents],
        chat_template=sweep.config.chat_template,
        **recipe.asking,
        progress=reporter,
    )
    said = _said(entry, saving, metric)
    now = document_values(metric, samples)
    common = sorted(said.keys() & now.keys())
    equal = sum(abs(said[doc] - now[doc]) <= _SAME_SCORE * max(1.0, abs(said[doc])) for doc in common)
    whole = len(common) == known
    claimed, found = float(point["saved"]["tokens"]), evaluation.savings["tokens"]
    same_saving = not whole or abs(claimed - found) <= _SAME_SAVING
    holds = len(common) - equal <= tolerance * len(common) and same_saving
    step = 0.0 if is_pooled(metric) else 1 / max(len(common), 1)
    said_by_seed = [scores for one in seeds if (scores := _said(one, saving, metric)).keys() >= set(common)]
    means = [fmean(scores[doc] for doc in common) for scores in said_by_seed if common]
    savings = [float(_nearest(one, saving)["saved"]["tokens"]) for one in seeds]
    alike = (
        bool(common)
        and _may_be_a_seed(fmean(now[doc] for doc in common), means, step)
        and (same_saving or _may_be_a_seed(found, savings, _SAME_SAVING))
    )
    return Checked(
        method=entry["method"],
        semantics=entry["semantics"],
        task=sweep.task,
        seed=entry["seed"],
        asked=point["asked"],
        documents=len(common),
        equal=equal,
        claimed=fmean([said[doc] for doc in common]) if common else None,
        found=fmean([now[doc] for doc in common]) if common else evaluation.scores[metric],
        claimed_saving=claimed if whole else None,
        found_saving=found if whole else None,
        verdict="unknown" if not common else "holds" if holds else "alike" if alike else "differs",
        trained=trained,
    )


def _nearest(entry: Mapping[str, Any], saving: float) -> Mapping[str, Any]:
    found: Mapping[str, Any] = min(entry["points"], key=lambda one: abs(one["asked"] - saving))
    return found


def _said(entry: Mapping[str, Any], saving: float, metric: str) -> dict[int, float]:
    """By document the scores an entry says at its point next to a saving."""
    return dict(zip(entry["documents"], _numbers(_nearest(entry, saving)["scores"].get(metric, ())), strict=False))


def _may_be_a_seed(mean: float, seeds: Sequence[float], step: float) -> bool:
    """Whether a mean may be that of one more seed, given those of the others."""
    if len(seeds) < _FEWEST_SEEDS:
        return False
    spread = stdev(seeds) * math.sqrt(1 + 1 / len(seeds)) * student_t.isf((1 - _CERTAINTY) / 2, len(seeds) - 1)
    return bool(abs(mean - fmean(seeds)) <= max(spread, step) + _ROUNDING)


def _numbers(scores: str | Sequence[float]) -> list[float]:
    return [float(one) for one in scores]
