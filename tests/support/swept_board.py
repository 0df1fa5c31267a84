"""Made-up measurements: sweeps as tables are made from, and boards whose methods have the scores of documents."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from adaptive_bench.leaderboard.boards import Source, board_of
from adaptive_bench.leaderboard.row import Row, checked
from adaptive_bench.leaderboard.standing import Line, Standing, chooses
from adaptive_bench.leaderboard.swept_answers import Answers, DialPoint, SweptAnswers
from adaptive_bench.store.measured import Documents, MeasuredPoint, MeasuredSweep, MeasuredTraining
from adaptive_bench.tables.comparison import Difference

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
    measured = []
    for asked, scores, saved in points:
        saved = saved if isinstance(saved, dict) else dict.fromkeys(("tokens", "core", "net", "layers"), saved)
        values, nothing = np.array(scores, dtype=float), np.full(len(scores), np.nan)
        flops = about.get("flops", {})
        known = {metric: float(values.mean())}
        documents = Documents(tuple(range(len(scores))), {metric: values}, nothing, nothing)
        measured.append(MeasuredPoint(asked, 10 * asked, 2.0, documents, known, saved, flops))
    about.pop("flops", None)
    usual = {"target": None, "split": "test", "variant": "", "levels": (0.1,), "conditions": {}, "made_with": "torch 1"}
    usual |= {"eligible": None, "documents_sha256": None}
    return MeasuredSweep(method, task, seed, training, points=measured, **usual | about)


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
            changes = dict(rows.get(method, {}))
            times = changes.pop("times", {})
            saved = changes.get("saved", 0.0 if method in ("dense", "base") else level)
            answers.sweeps[method, "bench", task] = [
                SweptAnswers(seed, None, tuple(range(len(one))), (DialPoint({axis: saved}, times, {metric: one}, 2.0),))
                for seed, one in enumerate(values, 1)
            ]
            reference = method in ("dense", "base")
            about = {"method": method, "task": task, "metric": metric, "axis": axis, "level": level, "saved": saved}
            about |= {"score": float(values.mean()), "low": None, "high": None, "seeds": len(values)}
            about |= {"documents": values.shape[1], "status": "nearest" if reference else "ok"}
            found.append(checked(make_row(**about | changes)))
    measured = [(row.task, row.conditions) for row in board_of(found).rows]
    return board_of(found, [Source(Path(), None, measured, answers)])


def right(share, documents=100, seeds=3):
    """[S, D]: so many of the documents are right, the same with every seed."""
    return np.tile(np.arange(documents) < round(share * documents), (seeds, 1)).astype(float)


def difference(by, apart):
    """A difference of scores, corrected and with an interval."""
    half = 0.5 * abs(by) if apart else 1.5 * abs(by) + 0.01
    return Difference(by, by - half, by + half, 0.01 if apart else 0.5, 3, 100, "seeds and documents")


def line_of(label, score=0.5, saved=0.15, rank=(1, 1), over=None, status="ok", **about):
    """A line of a list of one task."""
    about_row = {
        "method": label.partition(" ")[0],
        "task": "nano_math",
        "metric": METRIC,
        "axis": "net",
        "phase": "all",
    }
    about_row |= {"semantics": "bench", "level": 0.15, "score": score, "saved": saved, "status": status, "seeds": 3}
    row = Row(**about_row)
    usual = {"interval": (score - 0.1, score + 0.1), "net": saved, "skipped": 0.2}
    if chooses(label) == "":
        rank, saved = None, 0.0
    return Line(label, chooses(label), (row,), saved, score, rank=rank, over_static=over, **usual | about)


def standing_of(*lines, level=0.15, left_out=()):
    """A list of these lines, best first, at a level of net FLOPs."""
    ordered = sorted(lines, key=lambda line: (line.score is None, -(line.score or 0.0)))
    return Standing("net", "all", level, (("nano_math", METRIC),), left_out, tuple(ordered))


_NAMES = st.sampled_from(["dense", "base", "static_depth", "static_depth[unit=branch]", "random_skip", "prompt_router"])
_PARAMETER = st.from_regex(r"[a-z_]{1,20}=[a-z0-9.]{1,12}", fullmatch=True)
_SPECS = st.builds(
    lambda name, some, run: f"{name}{f'[{chr(44).join(some)}]' if some else ''}{run}",
    st.from_regex(r"[a-z][a-z_]{0,40}", fullmatch=True),
    st.lists(_PARAMETER, max_size=4),
    st.sampled_from(["", "@paper", " (seed1-abcdef)"]),
)
_SHARES = st.floats(-2, 2)


@st.composite
def standings(draw):
    """Any list: methods of any names, scores and savings, of which some meet the level."""
    lines = []
    for label in draw(st.lists(_NAMES | _SPECS, max_size=20, unique=True)):
        if draw(st.integers(0, 9)) == 0:
            lines.append(Line(label, chooses(label), (None,)))
            continue
        score, saved = draw(_SHARES), draw(st.floats(-0.5, 0.5))
        about = {"times": draw(st.dictionaries(st.sampled_from(["batch 1", "batch 8"]), _SHARES))}
        about |= {"projected": draw(st.none() | _SHARES), "interval": draw(st.none() | st.just((score - 9, score + 9)))}
        rank = draw(st.none() | st.tuples(st.integers(1, 20), st.integers(0, 20)))
        over = draw(st.none() | st.builds(difference, _SHARES, st.booleans()))
        status = "ok" if rank else draw(st.sampled_from(["nearest", "partial", "inert"]))
        lines.append(line_of(label, score, saved, rank and (rank[0], sum(rank)), over, status, **about))
    return standing_of(*lines, level=draw(st.sampled_from([0.05, 0.15, 1 / 6, 0.25])))
