"""Calibrated thresholds: do they skip what was asked for, in order, on text they have not seen?"""

import pytest
import torch

from adaptive_bench import registry
from adaptive_bench.errors import PluginFault, UsageError
from adaptive_bench.method import EXECUTE_ALL, Decision, DialSpec, Method, Thresholds
from adaptive_bench.model import AdaptiveModel

SAVINGS = (0.1, 0.2, 0.3, 0.4)
ROUNDING = 5e-4  # two tokens that stand at a threshold


def text(seed, rows=40, length=24):
    """A batch from one distribution: random tokens, the second half being continuation."""
    ids = torch.randint(3, 97, (rows, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[::3, 20:] = 0
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "continuation_mask": torch.arange(length).expand_as(ids) >= length // 2,
    }


@pytest.fixture(scope="module", params=["gateskip", "gateskip[shape=scalar,kv=evict]", "mod"])
def calibrated(request, make_model):
    model = make_model(request.param)
    model.method.thresholds.clear()
    report = model.calibrate([text(seed, rows=60) for seed in range(8)], SAVINGS)
    return model, report


def saved_tokens(model, batch):
    model.reset_ledger()
    with torch.no_grad():
        model(**batch)
    return model.compute_report()["saved"]["tokens"]


def test_target_is_hit_on_held_out_text(calibrated):
    """X7: within a point on other text of the same distribution; the report says what was realised."""
    model, report = calibrated
    assert [point["status"] for point in report["dials"]] == ["ok"] * len(SAVINGS)
    assert report["tokens"] == 8 * int(text(0, rows=60)["attention_mask"].sum())
    for saving in SAVINGS:
        model.dial = model.method.dial_for(saving)
        assert saved_tokens(model, text(seed=77, rows=300)) == pytest.approx(saving, abs=0.01)


def test_more_dial_more_saving(calibrated):
    """X6, X14: between calibrated shares too, no token that skips is kept again further down the dial at one site."""
    model, _ = calibrated
    batch, before = text(seed=5), -1.0
    for step in range(17):
        model.dial = model.method.dial_for(0.025 * step)
        now = saved_tokens(model, batch)
        assert now > before
        before = now
    assert (model.method.thresholds.values.diff(dim=0) >= 0).all()


def test_prompt_and_continuation_are_calibrated_apart(calibrated):
    """G21: each phase hits the share by itself, although their scores differ."""
    model, _ = calibrated
    model.dial = model.method.dial_for(0.3)
    batch = text(seed=78, rows=300)
    for continuation in (False, True):
        part = dict(batch, continuation_mask=torch.full_like(batch["continuation_mask"], continuation))
        assert abs(saved_tokens(model, part) - 0.3) < 0.1  # thresholds of the other half: roughly right only
    model.reset_ledger()
    half = batch["input_ids"].shape[1] // 2
    output = model(batch["input_ids"][:, :half], use_cache=True)
    model(batch["input_ids"][:, half:], past_key_values=output.past_key_values)
    report = model.compute_report()
    assert report["prefill"]["tokens"] == pytest.approx(0.3, abs=0.015)
    assert report["decode"]["tokens"] == pytest.approx(0.3, abs=0.015)


def test_a_dial_beyond_the_calibrated_range_is_refused(calibrated):
    """DESIGN 7: nothing is extrapolated; the error names the range and the call to make."""
    model, _ = calibrated
    model.dial = model.method.dial_for(0.45)
    with pytest.raises(UsageError, match=r"calibrate\("), torch.no_grad():
        model(**text(seed=5))


def test_calibration_is_reproducible_and_leaves_no_trace(make_model):
    """X12: same text, same thresholds; dial, mode and ledger come back as they were."""
    model, other = make_model("gateskip"), make_model("gateskip")
    model(**text(0))
    before = model.compute_report()
    model.train()
    for each in (model, other):
        each.method.thresholds.clear()
        each.calibrate([text(1)], SAVINGS)
    assert torch.equal(model.method.thresholds.values, other.method.thresholds.values)
    assert model.training and model.dial == model.method.dial.skip_nothing
    assert model.compute_report() == before


def test_text_without_continuation(make_model):
    """One phase lends its thresholds to the other where the text has only one."""
    model = make_model("gateskip")
    model.method.thresholds.clear()
    batch = text(0)
    batch["continuation_mask"] = torch.zeros_like(batch["continuation_mask"])
    model.calibrate([batch], SAVINGS)
    values = model.method.thresholds.at(0.2)
    assert torch.equal(values[0], values[1])


@torch.no_grad()
def test_equal_scores_are_all_kept_and_reported(make_model):
    """T-GS3, G5: skip iff score < threshold, so ties at the threshold stay; the report says that the target failed."""
    model = make_model("gateskip")
    for gate in model.method.gates:
        gate.weight.zero_(), gate.bias.fill_(5.0)
    model.method.thresholds.clear()
    report = model.calibrate([text(0)], [0.3])
    assert [point["status"] for point in report["dials"]] == ["fail"] and report["dials"][0]["realised"] == 0.0
    model.dial = model.method.dial_for(0.3)
    assert saved_tokens(model, text(1)) == 0.0


def written(model, batch):
    """Report of a text whose prompts are read in one call, and whose continuations are written one token per call."""
    ids, real, continuation = batch["input_ids"], batch["attention_mask"].bool(), batch["continuation_mask"]
    with torch.no_grad():
        model.reset_ledger()
        cache = model(ids, real & ~continuation, use_cache=True).past_key_values
        for at in range(ids.shape[1]):
            column = (real & continuation)[:, at : at + 1]
            if column.any():
                model(ids[:, at : at + 1], column, past_key_values=cache)
    return model.compute_report()


def uneven_text(seed):
    """Prompts of many lengths; one row is all prompt, one has none."""
    batch = text(seed, rows=100)
    prompts = torch.randint(6, 16, (100, 1), generator=torch.Generator().manual_seed(seed))
    prompts[0], prompts[1] = 24, 0
    return batch | {"continuation_mask": torch.arange(24) >= prompts}


@pytest.mark.parametrize(
    ("spec", "family"), [("mod@paper", "llama"), ("mod[every=1]@paper", "llama"), ("mod[every=1]@paper", "qwen3")]
)
def test_prompts_are_routed_as_inference_routes_them(spec, family, make_model):
    """Top-k of the router in prompts, cuts of the predictor after them: on its own text a cut skips what was asked."""
    model, batch = make_model(spec, family), uneven_text(0)
    model.forget_calibration()
    report = model.calibrate([batch], SAVINGS[:3])
    for saving, point in zip(SAVINGS, report["dials"], strict=False):
        model.dial = model.method.dial_for(saving)
        share = len(model.method.routed) / model.backbone.num_layers
        assert written(model, batch)["decode"]["tokens"] == pytest.approx(point["realised"] * share, abs=ROUNDING)
        assert point["realised"] * share == pytest.approx(saving, abs=0.004)


def test_a_dial_is_solved_for_as_inference_decides(make_model):
    """Router tuning in `paper` decides once per prompt, then token by token: the dial's saving is that of both."""
    model, batch = make_model("router_tuned_mod@paper"), uneven_text(0)
    model.forget_calibration()
    report = model.calibrate([batch], (0.05, 0.1, 0.15))
    for point in report["dials"]:
        model.dial = point["dial"]
        assert written(model, batch)["saved"]["tokens"] == pytest.approx(point["realised"], abs=ROUNDING)


def test_text_without_continuation_calibrates_what_is_written(make_model):
    """The predictor of `paper` is then cut on prompts, as if they were written."""
    model, batch = make_model("mod@paper"), text(0)
    model.method.thresholds.clear()
    batch["continuation_mask"] = torch.zeros_like(batch["continuation_mask"])
    assert [point["status"] for point in model.calibrate([batch], SAVINGS[:3])["dials"]] == ["ok"] * 3


class Mine(Method):
    """Skips tokens with a short state."""

    dial = DialSpec("kept", 0.0, 1.0, 1.0)
    asked = 1.0

    def __init__(self, config, backbone, semantics, seed):
        super().__init__(config, backbone, semantics, seed)
        self.thresholds = Thresholds(range(2 * backbone.num_layers))

    def dial_for(self, saved_tokens):
        return 1.0 - saved_tokens

    @property
    def skip_share(self):
        return 1.0 - self.value

    def decide(self, view):
        return Decision(self.thresholds.keep(view, view.hidden.float().norm(dim=-1), self.asked * self.skip_share))


def asks_at_one_site(self, view):
    return Mine.decide(self, view) if view.site.number == 1 else EXECUTE_ALL


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"skip_share": 0.0}, "Odd.* at kept 0.8 does not call .* with a share above 0 at 8 sites"),
        ({"decide": lambda self, view: EXECUTE_ALL}, "at 8 sites .* the number 0"),
        ({"decide": asks_at_one_site}, "at 7 sites"),
        ({"asked": 100}, "Thresholds are asked for a share from 0 to 1"),
        ({"asked": -1}, "Thresholds are asked for a share from 0 to 1"),
    ],
)
def test_a_method_whose_shares_are_none_is_refused(parts, said, make_backbone, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("methods", "odd")(type("Odd", (Mine,), parts))
    registry.register("methods", "sound")(Mine)
    AdaptiveModel.build(make_backbone("llama"), "sound").calibrate([text(0, rows=4)], [0.2])
    with pytest.raises(PluginFault, match=said):
        AdaptiveModel.build(make_backbone("llama"), "odd").calibrate([text(0, rows=4)], [0.2])


def test_thresholds_know_their_sites(make_backbone, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("methods", "odd")(Mine)
    model = AdaptiveModel.build(make_backbone("llama"), "odd")
    model.method.thresholds = Thresholds([0, 1])
    with pytest.raises(PluginFault, match="at site number 2; their sites are 0, 1"):
        model.calibrate([text(0, rows=4)], [0.2])


@pytest.mark.parametrize("spec", ["gateskip", "calm"])
@torch.no_grad()
def test_failed_calibration_changes_nothing(spec, make_model, random_text, monkeypatch):
    """Out of memory half-way: the model decides as before, at its dial, in its mode, with its counts."""
    model, ids = make_model(spec), random_text(1, 20)
    model.dial = model.method.dial_for(0.3)
    dial, logits = model.dial, model(ids).logits
    report = model.compute_report()
    decide, calls = model.method.decide, []

    def out_of_memory(view):
        calls.append(view)
        if len(calls) == 5:
            raise torch.OutOfMemoryError("too many rows")
        return decide(view)

    monkeypatch.setattr(model.method, "decide", out_of_memory)
    model.train()
    with pytest.raises(torch.OutOfMemoryError):
        model.calibrate(
            [text(0, rows=20)], [0.21]
        )  # not yet between two dial values that are measured and close enough
    monkeypatch.setattr(model.method, "decide", decide)
    assert model.training and model.dial == dial and model.compute_report() == report
    assert torch.equal(model.eval()(ids).logits, logits)


def test_the_order_of_calibration_does_not_matter(make_model):
    """Between calibrated shares too, down to the share 0 that nobody measures."""
    model, rows = make_model("gateskip"), []
    for savings in ([[0.1, 0.2, 0.3]], [[0.3], [0.1], [0.2]], [[0.2, 0.3], [0.2], [0.1]]):
        model.method.thresholds.clear()
        for some in savings:
            model.calibrate([text(0)], some)
        rows.append(torch.stack([model.method.thresholds.at(share) for share in (0.0, 0.04, 0.1, 0.17, 0.25, 0.3)]))
    assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2])


def test_no_threshold_falls_between_two_shares():
    """Measured rows stay what they are; what lies between them never falls."""
    thresholds = Thresholds([0])
    shares, values = torch.tensor([[0.0, 0.2, 0.4], [0.1, 0.5, 0.4]], dtype=torch.float64)
    thresholds.load({"shares": shares, "values": values[:, None, None].expand(3, 2, 1)})
    lookup = [float(thresholds.at(share)[0, 0]) for share in (0.1, 0.2, 0.3, 0.4)]
    assert lookup == pytest.approx([0.3, 0.5, 0.5, 0.4])


@torch.no_grad()
def test_new_thresholds_count_at_once(make_model, random_text):
    """Rows kept ready for use are dropped with the thresholds they come from."""
    model, ids = make_model("gateskip"), random_text(2, 20)
    fresh = make_model("gateskip")
    fresh.method.thresholds.clear()
    fresh.calibrate([text(0)], [0.3])
    for each in (model, fresh):
        each.dial = each.method.dial_for(0.3)
    before, wanted = model(ids).logits, fresh(ids).logits
    model.calibrate([text(0)], [0.3])
    assert torch.equal(model(ids).logits, wanted) and not torch.equal(before, wanted)
    model.begin_step(1, 2)
    with pytest.raises(UsageError, match="nothing calibrated"):
        model(ids)


@pytest.mark.parametrize("batches", [[], [{"input_ids": torch.zeros(1, 2, dtype=torch.long)}]])
@pytest.mark.parametrize("spec", ["gateskip", "calm"])
def test_calibrating_without_text(spec, batches, make_model):
    """The error says what is needed."""
    batches = [
        dict(batch, attention_mask=batch["input_ids"], continuation_mask=batch["input_ids"]) for batch in batches
    ]
    with pytest.raises(UsageError, match="held-out training text, got 0 tokens"):
        make_model(spec).calibrate(batches, [0.1])
    assert make_model("dense").calibrate(batches, [0.0])["tokens"] == 0
