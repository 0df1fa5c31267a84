"""What rows say of the trainings behind them: what these cost, and which saving they aimed at."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.runs.planning.works import TrainingRun
from adaptive_bench.tables.rows import About

_NEAR = 0.01  # of the wanted saving


def about_training(trainings: Sequence[TrainingRun]) -> About:
    """What the trainings of a method cost, those they start from included, and what they aimed at; means over seeds."""
    costs = [cost for training in trainings if (cost := _cost(training)) is not None]
    about = About()
    if len(costs) == len(trainings):
        about = About(
            parameters_added=round(fmean(cost["parameters_added"] for cost in costs)),
            train_tokens=round(fmean(cost["tokens"] for cost in costs)),
            train_flops=fmean(cost["flops"] for cost in costs),
        )
    targets = [target for training in trainings if (target := training.record.read("target.json")) is not None]
    if targets:
        reached = {axis: fmean(target["priced"][axis] for target in targets) for axis in targets[0]["priced"]}
        axis, saving = targets[0]["axis"], targets[0]["saving"]
        if targets[0].get("whole_layers"):  # a number of layers is the same on every axis
            about["trained_without"] = fmean(target["tokens"] for target in targets)
        else:
            about["target_axis"] = axis
        near = abs(reached[axis] - saving) <= _NEAR  # pricing stops close to the target; else the dial ended before it
        about["trained_for"] = (
            reached | {"claimed": fmean(target["tokens"] for target in targets)} | ({axis: saving} if near else {})
        )
    return about


def _cost(training: TrainingRun) -> dict[str, float] | None:
    """Tokens and FLOPs of a training and of those it starts from; parameters of its own method."""
    cost: dict[str, float] | None = training.record.read("cost.json")
    data = training.record.read("data.json")
    if cost is not None and data is not None and data.get("tokens", cost["tokens"]) != cost["tokens"]:
        raise EnvironmentProblem(
            f"A training costs the tokens of its data, but in {str(training.folder)!r} cost.json has {cost['tokens']} "
            f"and data.json {data['tokens']}. The record was changed: remove that folder and give "
            f"the same command again."
        )
    if cost is None or training.base is None:
        return cost
    base = _cost(training.base)
    return None if base is None else cost | {key: cost[key] + base[key] for key in ("tokens", "flops")}
