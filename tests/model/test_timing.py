"""Timing: variants in turn, each with its own books, every figure a share of the plain model of the same round."""

import pytest
import torch

from adaptive_bench.model.efficiency import (
    Quantiles,
    decode_in_turns,
    drive_adaptive,
    drive_plain,
    in_turns,
    time_model,
)


def test_every_round_takes_every_variant_once():
    taken = []
    times = in_turns({name: lambda name=name: taken.append(name) for name in "abc"}, 4, warm_up=2)
    rounds = [taken[start : start + 3] for start in range(0, len(taken), 3)]
    assert len(rounds) == 6
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1, "nobody always runs behind the same neighbour"
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 4, "b": 4, "c": 4}


def test_spread_is_a_median_with_quartiles():
    assert Quantiles.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Quantiles(3.0, 2.0, 4.0, 5)
    assert Quantiles.of([1.5]) == Quantiles(1.5, 1.5, 1.5, 1)


def test_dials_of_one_model_have_books_of_their_own_over_one_prompt_and_its_new_tokens(make_model, random_text):
    model = make_model("random_skip")
    drives = {
        "plain": drive_plain(model.backbone_model),
        "none": drive_adaptive(model, 0.0),
        "half": drive_adaptive(model, 0.5),
    }
    times = decode_in_turns(drives, random_text(2, 20), 12)
    assert {len(seconds) for seconds in times.values()} == {8}
    none, half = (drives[name].ledger.report() for name in ("none", "half"))
    assert none["saved"]["tokens"] == 0
    assert 0.3 < half["saved"]["tokens"] < 0.7
    assert none["counts"]["prefill"]["tokens"] == 2 * 12
    assert none["counts"]["decode"]["tokens"] == 2 * 8


@pytest.mark.parametrize("spec", ["random_skip", "gateskip", "static_depth", "free"])
def test_a_method_is_timed_over_its_dial_as_far_as_it_goes(spec, make_model, random_text):
    model = make_model(spec)
    timing = time_model(
        model.backbone_model, model, (0.0, 0.1, 0.3, 0.99 if spec == "random_skip" else 0.3), random_text(2, 14),
        prompt=10, rounds=3,
    )  # fmt: skip
    points = timing["points"]
    assert [point["requested"] for point in points] == sorted({point["requested"] for point in points})
    assert points[0]["saved"]["tokens"] == pytest.approx(0, abs=0.01)
    assert points[-1]["requested"] <= model.method.max_saved_tokens
    for point in points:
        assert (point["prefill_s"]["count"], point["decode_s"]["count"]) == (3, 4)
        saved = point["saved_time"]
        assert min(saved["prefill"], saved["decode"]) <= saved["total"] <= max(saved["prefill"], saved["decode"])
        assert saved["prefill"] == pytest.approx(1 - 1 / point["prefill_speedup"]["median"])
    assert set(timing) == {"plain", "points"}


def test_nothing_is_kept_for_a_gradient(make_model, random_text):
    model = make_model("gateskip")
    model.train().eval()
    outputs = []
    handle = model.backbone_model.lm_head.register_forward_hook(lambda *args: outputs.append(args[-1]))
    time_model(model.backbone_model, model, (0.0,), random_text(1, 8), prompt=6, rounds=1)
    handle.remove()
    assert outputs and not any(output.requires_grad for output in outputs)
    assert torch.is_grad_enabled()
