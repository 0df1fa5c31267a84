"""Made-up measurements: sweeps as tables are made from, and boards whose methods have the scores of documents."""

import numpy as np

from adaptive_bench.leaderboard.answers import AnsweredPoint, Answers, SweptAnswers
from adaptive_bench.leaderboard.frame import board_of
from adaptive_bench.leaderboard.row import checked
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining

METRIC = "exact_match,strict-match"
BITS = "bits_per_byte,none"


def sweep_of(points, method="gateskip", task="some_task", seed=1, metric=METRIC, **about):
    """A measured sweep.

    Args:
        points: Of each `asked`, scores of documents, and savings by name; a number stands for every saving.
        about: Fields of the sweep, and `cost`, `aim` and `base` of its training.
    """
    training = MeasuredTraining(
        f"{method} {seed}", method, seed, about.pop("base", None), about.pop("cost", None), about.pop("aim", None)
    )
    measured, documents = [], []
    for asked, scores, saved in points:
        saved = saved if isinstance(saved, dict) else dict.fromkeys(("tokens", "core", "net", "layers"), saved)
        values, nothing = np.array(scores, dtype=float), np.full(len(scores), np.nan)
        flops = about.get("flops", {})
        known = {metric: float(values.mean())}
        measured.append(MeasuredPoint(asked, 10 * asked, 2.0, len(scores), known, saved, flops))
        documents.append(Documents(tuple(range(len(scores))), {metric: values}, nothing, nothing))
    about.pop("flops", None)
    usual = {"target": None, "split": "test", "variant": "", "levels": (0.1,), "conditions": {}, "made_with": "torch 1"}
    usual |= {"eligible": None, "documents_sha256": None}
    return MeasuredSweep(method, task, seed, training, points=measured, documents=documents, **usual | about)


def board_with(make_row, scores, level=0.15, axis="net", **rows):
    """A board with scores [S, D] by task and method, all measured at `level`; tasks called `bits...` are of texts.

    Args:
        rows: By method other values of its rows, among them `saved`, where its point lies.
    """
    answers, found = Answers(), []
    for task, by_method in scores.items():
        metric = BITS if task.startswith("bits") else METRIC
        for method, values in by_method.items():
            values = np.atleast_2d(np.asarray(values, dtype=float))
            changes = rows.get(method, {})
            saved = changes.get("saved", 0.0 if method in ("dense", "base") else level)
            point = AnsweredPoint(0.5, saved, {axis: saved}, changes.get("times", {}), {}, 2.0)
            answers.sweeps[method, "bench", task] = [
                SweptAnswers(
                    seed,
                    None,
                    tuple(range(len(one))),
                    (AnsweredPoint(**vars(point) | {"scores": {metric: one}}),),
                )
                for seed, one in enumerate(values, 1)
            ]
            reference = method in ("dense", "base")
            about = {"method": method, "task": task, "metric": metric, "axis": axis, "level": level, "saved": saved}
            about |= {"score": float(values.mean()), "low": None, "high": None, "seeds": len(values)}
            about |= {"documents": values.shape[1], "status": "nearest" if reference else "ok"}
            changes = {name: value for name, value in changes.items() if name != "times"}
            found.append(checked(make_row(**about | changes)))
    return board_of(found, answers={"run": answers})


def right(share, documents=100, seeds=3):
    """[S, D]: so many of the documents are right, the same with every seed."""
    return np.tile(np.arange(documents) < round(share * documents), (seeds, 1)).astype(float)
