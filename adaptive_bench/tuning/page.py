"""The page of a study: every trial as a table; with Plotly also history, importance, slices and the front, inlined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import optuna
from optuna import visualization

from adaptive_bench.store import atomic
from adaptive_bench.tuning.result import StudyResult, TrialResult

_STYLE = "body{font:16px sans-serif;max-width:70em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"
_WITHOUT = "Install adaptive-bench[plots] and give the tune command again to see plots here."


def write_page(result: StudyResult, studies: Sequence[optuna.Study], folder: Path) -> Path:
    """Write `study.html`, which needs no network. Without Plotly it has the table alone, and says so."""
    plots = list(_plots(result, studies)) if visualization.is_available() else [f"<p>{_WITHOUT}</p>"]
    title = f"Study {escape(result.name)}"
    about = f"<p>Objective {escape(result.definition['objective'])}, on validation documents.</p>"
    exhausted = [f"<p>{escape(text)}</p>" for text in result.exhausted_text]
    body = "\n".join([f"<h1>{title}</h1>", about, _table(result.trials), *exhausted, *_confirmed(result), *plots])
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    page = folder / "study.html"
    atomic.write_text(page, f"<!doctype html><html><head>{head}</head><body>{body}</body></html>\n")
    return page


def _table(trials: Sequence[TrialResult]) -> str:
    rows = ["<tr><th>method<th>trial<th>values<th>state<th>objective<th>s (train + eval)<th>reason</tr>"]
    for trial in trials:
        values = ", ".join(f"{name}={value}" for name, value in trial.values.items()) or "(its defaults)"
        value = "" if trial.value is None else f"{trial.value:.4f}"
        state = "interrupted" if trial.interrupted else trial.state
        cells = [trial.method, str(trial.number), values, state, value, trial.seconds_text, trial.reason]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return "<table>" + "\n".join(rows) + "</table>"


def _confirmed(result: StudyResult) -> list[str]:
    if not result.confirmed:
        return []
    about = (
        "<p>The best of each method and its defaults, trained again with seeds of their own; the better one stands.</p>"
    )
    return ["<h2>Confirmed</h2>", about, _table(result.confirmed)]


def _plots(result: StudyResult, studies: Sequence[optuna.Study]) -> Iterator[str]:
    script: Any = True  # Plotly itself, once
    for study in studies:
        named = [trial for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE and trial.params]
        figures = [visualization.plot_optimization_history(study)]
        if len(named) > 1:
            figures += [visualization.plot_slice(study)]
        if len({tuple(trial.params.items()) for trial in named}) > 1 and len({trial.value for trial in named}) > 1:
            figures += [visualization.plot_param_importances(study)]
        yield f"<h2>{escape(study.study_name)}</h2>"
        for figure in figures:
            yield figure.to_html(full_html=False, include_plotlyjs=script)
            script = False
    yield "<h2>Score by saving, all complete trials</h2>"
    yield _front(result).to_html(full_html=False, include_plotlyjs=script)


def _front(result: StudyResult) -> Any:
    """Score at every level, a line for each trial and task."""
    from plotly import graph_objects

    figure = graph_objects.Figure()
    levels = result.definition["levels"]
    for trial in result.trials:
        for task, scores in trial.curve.items():
            if trial.state == "complete":
                label = f"{trial.spec}, {task}"
                figure.add_scatter(x=levels[task], y=scores, mode="lines+markers", name=label)
    figure.update_layout(xaxis_title="saved", yaxis_title="score on validation documents")
    return figure
