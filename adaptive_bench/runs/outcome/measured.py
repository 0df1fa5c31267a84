"""The measurements of a run, read off its records: what its table is made of, and what an entry of a board holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.evaluation.lookup import find_task
from adaptive_bench.runs.outcome.projection import projected
from adaptive_bench.runs.planning.conditions import conditions
from adaptive_bench.runs.planning.plan import Plan
from adaptive_bench.runs.planning.works import DialEvaluation, TrainingRun
from adaptive_bench.store.entry import Measurements, Text
from adaptive_bench.store.evaluations import Evaluation, Sample
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.tables.made_with import made_with

SHOWN_DOCUMENTS = 6  # of each point, whose texts are passed on
LONGEST_TEXT = 1000
Points = Mapping[float, Evaluation]  # by the saving each was asked for


def training_of(work: TrainingRun) -> MeasuredTraining:
    """What the record of a training says of it, its log left out."""
    record = work.record
    return MeasuredTraining(
        key=work.folder.name,
        method=str(work.spec),
        seed=work.seed,
        base=None if work.base is None else training_of(work.base),
        cost=record.read("cost"),
        target=record.read("target"),
    )


def priced_alike(sweeps: Sequence[DialEvaluation]) -> tuple[list[Points], list[str]]:
    """The points of the sweeps of one spec with their projection, and why there is none, if so."""
    found = [sweep.finished() or {} for sweep in sweeps]
    first = sweeps[0]
    measured = {place: list(points.values()) for place, points in enumerate(found)}
    priced, unprojected = projected(first.spec, measured, first.config.project_onto)
    return [dict(zip(points, priced[place], strict=True)) for place, points in enumerate(found)], unprojected


def sweep_of(work: DialEvaluation, points: Points, samples: Sequence[Sequence[Sample]]) -> MeasuredSweep:
    """One sweep in plain values.

    Args:
        points: With their projection.
        samples: The documents of each.

    Raises:
        EnvironmentProblem: Documents are missing.
    """
    for one, documents in zip(points.values(), samples, strict=True):
        if one.docs != len(documents):
            raise EnvironmentProblem(
                f"A measured point has what every document scored, but in {str(work.folder)!r} at the dial value "
                f"{one.dial:g} there are {len(documents)} of {one.docs} documents. Remove that folder and give the "
                f"same `adaptive-bench run` again: it is measured anew."
            )
    some = next(iter(points.values()), None)
    metrics = find_task(work.task).metrics
    records = [record.read("env") or {} for record in (work.training.record, work.record)]
    return MeasuredSweep(
        method=str(work.spec),
        task=work.task,
        seed=work.training.seed,
        training=training_of(work.training),
        target=None if work.training.has_single_target else work.training.target,
        split=work.split,
        variant=work.variant,
        levels=work.levels,
        conditions={} if some is None else asdict(conditions(work, some)),
        made_with=made_with(one for about in records for one in (*about.get("before", ()), about)),
        eligible=(work.record.read("dial") or {}).get("eligible"),
        documents_sha256=None if some is None else (some.data or {}).get("documents_sha256"),
        points=[MeasuredPoint.of(asked, one, metrics) for asked, one in points.items()],
        documents=[Documents.of(one) for one in samples],
        curves=work.curves,
    )


def measured_run(whole: Plan) -> Measurements:
    """Everything that a finished run has measured, for an entry.

    Raises:
        EnvironmentProblem: A record is damaged, or measured points are missing.
    """
    groups: dict[tuple[str, str], list[DialEvaluation]] = {}
    for work in whole.sweeps:
        groups.setdefault((str(work.spec), work.task), []).append(work)
    found: dict[Path, tuple[MeasuredSweep, list[list[Text]]]] = {}
    for works in groups.values():
        for work, points in zip(works, priced_alike(works)[0], strict=True):
            if not points:
                raise EnvironmentProblem(
                    f"An entry is of a run that is complete, but there is nothing of `{work}`. Give the run's command "
                    f"again."
                )
            samples = [work.record.samples(asked) for asked in points]
            shown = work.split == "test" and not work.variant
            written = [[_text(one) for one in some[:SHOWN_DOCUMENTS]] for some in samples] if shown else []
            found[work.folder] = sweep_of(work, points, samples), written
    ordered = [found[work.folder] for work in whole.sweeps]
    texts = {(place, number): some for place, (_, one) in enumerate(ordered) for number, some in enumerate(one)}
    return Measurements([sweep for sweep, _ in ordered], [_logged(work) for work in whole.trainings], texts)


def _text(sample: Sample) -> Text:
    return Text(sample.doc, str(sample.target)[:LONGEST_TEXT], str(sample.output)[:LONGEST_TEXT], sample.correct)


def _logged(work: TrainingRun) -> MeasuredTraining:
    """A training with its log and what else a reader may ask."""
    record = work.record
    log = work.folder / "train.jsonl"
    lines = [json.loads(line) for line in log.read_bytes().splitlines()] if log.is_file() else []
    data, timing = (record.read(section) or {} for section in ("data", "timing"))
    facts = {
        "learning_rate": work.content.get("method_learning_rate"),
        "order_sha256": data.get("order_sha256"),
        "seconds": timing.get("train_s"),
        "made_with": made_with([record.read("env") or {}]),
    }
    steps, losses = ([line[name] for line in lines] for name in ("step", "loss"))
    return replace(training_of(work), facts=facts, steps=steps, losses=losses)
