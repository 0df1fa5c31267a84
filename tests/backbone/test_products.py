"""The form of a linear map is measured once on a machine, remembered, and left alone where nothing is gained."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from adaptive_bench.backbone import products
from adaptive_bench.backbone.products import FORMS, VARIABLE, Products, cache_file, compute


@pytest.fixture
def weight():
    return torch.randn(24, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Where answers are kept; nothing is known, and nothing too small to be measured."""
    monkeypatch.setattr(products, "_TRIFLE_S", 0.0)
    monkeypatch.setenv(VARIABLE, "measured")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_file()


def fastest(weight, rows=4):
    return Products(lambda: [weight]).fastest(torch.ones(rows, weight.shape[1]), weight)


def clocked(monkeypatch, costs_s):
    """Every form takes what a list says, one entry after the other; the first two calls warm up. Other maps, which go
    before so that a form's code is at hand, take nothing.
    """
    now, left, maps = [0.0], {form: iter(times) for form, times in costs_s.items()}, []

    def run(form, _, weight, *__):
        maps.append(weight)
        if weight is maps[0]:
            now[0] += next(left[form])

    monkeypatch.setattr(products, "compute", run)
    clock = SimpleNamespace(thread_time=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr(products, "time", clock)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("bias", [None, torch.arange(24.0)])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_the_same_map(form, bias, rows, weight):
    states = torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))
    found = compute(form, states, weight, bias)
    torch.testing.assert_close(found, functional.linear(states, weight, bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("times", "form"),
    [
        ([0.008] * 5, "transposed"),
        ([0.0097] * 5, "plain"),  # within noise
        ([0.008, 0.011, 0.008, 0.012], "plain"),  # not the faster one every time: nobody looks any further
        ([0.008, 0.008, 0.008, 0.012, 0.008], "transposed"),  # somebody else was at work once
    ],
)
def test_another_form_has_to_gain_more_than_noise(times, form, weight, measured, monkeypatch):
    clocked(monkeypatch, {"plain": [0.01] * 7, "transposed": [0.001, 0.001, *times]})
    assert fastest(weight) == form


def test_a_trifle_is_left_as_it_is(weight, measured, monkeypatch):
    monkeypatch.setattr(products, "_TRIFLE_S", 1e-3)
    clocked(monkeypatch, {"plain": [1e-5] * 2, "transposed": [1e-6] * 2})
    assert fastest(weight) == "plain" and not measured.exists()


def test_the_answer_is_remembered(weight, measured, monkeypatch):
    form = fastest(weight)
    kept = json.loads(measured.read_text())
    assert list(kept["fastest"].values()) == [form] and kept["machine"]["torch"] == torch.__version__
    monkeypatch.setattr(products, "_measure", pytest.fail)
    assert fastest(weight) == form


@pytest.mark.parametrize("content", ["", '{"schema": 1, "machine": {}, "fastest": {}}'])
def test_a_file_that_cannot_be_used_is_measured_anew(content, weight, measured):
    measured.parent.mkdir(parents=True)
    measured.write_text(content)
    form = fastest(weight)
    assert list(json.loads(measured.read_text())["fastest"].values()) == [form]


def test_a_folder_that_cannot_be_written_costs_time_alone(weight, measured):
    measured.parent.parent.parent.mkdir(exist_ok=True)
    (measured.parent.parent).write_text("a file where the folder should be")
    assert fastest(weight) in FORMS


def test_all_processes_go_by_the_first_answer(weight, measured, monkeypatch):
    """Another one wrote its answer while this one measured."""
    monkeypatch.setattr(products, "_measure", lambda *_: "transposed")
    fastest(weight)
    kept = json.loads(measured.read_text())
    measured.unlink()

    def late(*_):
        measured.write_text(json.dumps(kept))
        return "plain"

    monkeypatch.setattr(products, "_measure", late)
    assert fastest(weight) == "transposed"


def test_each_shape_has_an_answer_of_its_own(weight, measured):
    for rows in (1, 2):
        fastest(weight, rows)
    assert len(json.loads(measured.read_text())["fastest"]) == 2


def test_many_rows_are_not_measured(weight, measured):
    assert fastest(weight, 65) == "plain"
    assert not measured.exists()


def test_the_choice_can_be_fixed(weight, measured, monkeypatch):
    monkeypatch.setenv(VARIABLE, "fixed")
    assert fastest(weight) == "plain"
    assert not measured.exists()


def test_a_setting_that_is_unknown_is_refused(weight, monkeypatch):
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(products.UsageError, match=r"measured or fixed, got 'fast'"):
        fastest(weight)


def test_where_a_gradient_is_taken_nobody_asks(make_backbone, monkeypatch):
    """A training depends on no measurement."""
    from adaptive_bench.backbone import Backbone

    backbone = Backbone(make_backbone("llama"))
    monkeypatch.setattr(Products, "fastest", pytest.fail)
    linear = nn.Linear(16, 24)
    states = torch.ones(8, 16)
    assert torch.equal(backbone.step.linear(linear, states), linear(states))
