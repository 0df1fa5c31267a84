"""Logits that are no numbers are a failure, not a score."""

import math

import pytest
import torch
from torch import nn

from adaptive_bench import stopping
from adaptive_bench.errors import NotFinite
from adaptive_bench.evaluation.finite import Watched, check_metrics, check_scores
from adaptive_bench.model.generation import likeliest

MODEL = nn.Linear(2, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_without_numbers_is_remembered(bad):
    choose = Watched(likeliest)
    fine, broken = torch.tensor([[0.0, 1.0], [2.0, -math.inf]]), torch.tensor([[0.0, 1.0], [bad, 1.0]])
    assert choose(fine).tolist() == [1, 0]
    choose.check("here", MODEL)
    choose(broken)
    choose(fine)
    with pytest.raises(NotFinite, match="here"):
        choose.check("here", MODEL)


def test_who_is_asked_to_stop_writes_no_further_token():
    choose = Watched(likeliest)
    with stopping.listening():
        stopping.request()
        with pytest.raises(stopping.Stopped):
            choose(torch.zeros(1, 2))
    assert choose(torch.tensor([[0.0, 1.0]])).tolist() == [1]


def test_scores_without_numbers_are_refused():
    check_scores([-1.0, -math.inf], "here", MODEL)
    for bad in (math.nan, math.inf):
        with pytest.raises(NotFinite, match="here"):
            check_scores([-1.0, bad], "here", MODEL)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_told_from_logits_that_overflow(bad):
    broken = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    broken.register_buffer("threshold", torch.tensor(math.inf))  # of a gate that everything passes, say
    with pytest.raises(NotFinite, match=r"with finite weights\. .* losses in its train\.jsonl grow"):
        check_scores([math.nan], "here", broken)
    with torch.no_grad():
        broken[1].weight[0, 0] = bad
    with pytest.raises(NotFinite, match=r"not finite themselves \(the first: 1\.weight\).* If it was not, --model has"):
        check_scores([math.nan], "here", broken)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_metric_that_gives_no_number_is_named(bad):
    check_metrics({"mine,none": 0.5}, "the task 'a'")
    with pytest.raises(NotFinite, match=r"'mine,none' of the task 'a' is .*Correct the metric and its aggregation"):
        check_metrics({"acc,none": 0.5, "mine,none": bad}, "the task 'a'")
